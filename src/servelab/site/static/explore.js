// Wakes the figures of a page. Every state was computed by the book's Python; this script only looks it up,
// hands it to Plotly and keeps controls, sentence, table and address in step.
(() => {
  "use strict";

  const LOST = "The link names a setting that this figure does not have; here is its start.";
  const REST_MS = 200; // a hand has come to rest; Safari allows 100 changes of the address in 10 seconds
  const TEXTS = '[class$="tick"] text, [class$="title"] text, .annotation-text';
  const pen = document.createElement("canvas").getContext("2d");

  // The document (figure and sentence) at one index an axis; the same steps as state_at in states.py.
  function stateAt(content, indices) {
    const document = {};
    for (const [path, axes, values, rows] of content.leaves) {
      let row = 0;
      for (const axis of axes) row = row * content.axes[axis].options.length + indices[axis];
      if (rows[row] < 0) continue;
      const value = structuredClone(values[rows[row]]); // Plotly writes into what it is given
      if (path.length === 0) return value;
      let here = document;
      path.slice(0, -1).forEach((key, depth) => {
        here[key] ??= typeof path[depth + 1] === "number" ? [] : {};
        here = here[key];
      });
      here[path.at(-1)] = value;
    }
    return document;
  }

  // On a small phone a heading can be wider than the drawing: behind a gap it goes on in a further line.
  function wrapped(text, font, width) {
    pen.font = font;
    const fits = (line) => pen.measureText(line.replace(/<[^>]*>/g, "")).width <= width;
    const lines = [];
    for (const line of text.split("<br>")) {
      const gap = line.includes("<") ? "   " : " "; // in a key between its entries, not in their markup
      lines.push("");
      for (const piece of fits(line) ? [line] : line.split(gap)) {
        const longer = lines.at(-1) ? lines.at(-1) + gap + piece : piece;
        if (!lines.at(-1) || fits(longer)) lines[lines.length - 1] = longer;
        else lines.push(piece);
      }
    }
    return lines.join("<br>");
  }

  // Text and lines take the page's colours, so that one figure serves light and dark. No tick label is hidden: to look
  // for those without room takes a tenth of a redraw, and margins make room. With `room` they are as given. `width` is
  // that of the drawing, in px, of which `left` are the margin; until that is known, what the figure asks for.
  function themed(layout, room, width, left) {
    const style = getComputedStyle(document.documentElement);
    const text = style.getPropertyValue("--pst-color-text-base").trim();
    const line = style.getPropertyValue("--pst-color-border").trim();
    const axis = { gridcolor: line, linecolor: line, tickcolor: line, ticklabeloverflow: "allow", automargin: !room };
    const font = { ...layout.font, color: text, family: getComputedStyle(document.body).fontFamily };
    const { margin: usual, font: plain } = layout.template.layout;
    const margin = { ...usual, ...layout.margin, ...room };
    const result = { ...layout, font, width, margin };
    result.annotations = layout.annotations?.map((annotation) => {
      if (annotation.x !== 0 || annotation.xanchor !== "left" || annotation.yanchor !== "bottom") return annotation;
      const size = annotation.font?.size ?? plain.size;
      const heading = wrapped(annotation.text, `${size}px ${font.family}`, width - (left ?? margin.l) - 4);
      if (annotation.yref === "y domain") margin.t = Math.max(margin.t, 17 * heading.split("<br>").length + 4);
      return { ...annotation, text: heading, align: "left" };
    });
    for (const key of Object.keys(layout)) {
      if (/^[xy]axis\d*$/.test(key)) result[key] = { ...axis, ...layout[key] };
    }
    return result;
  }

  // Whether all that axes and headings write is inside the drawing.
  function labelsFit(plot) {
    const whole = plot.getBoundingClientRect();
    return [...plot.querySelectorAll(TEXTS)].every((element) => {
      const { left, right, bottom } = element.getBoundingClientRect();
      return left >= whole.left - 1 && right <= whole.right + 1 && bottom <= whole.bottom + 1;
    });
  }

  function fillTables(details, tables) {
    const row = (cells, tag) => {
      const tr = document.createElement("tr");
      for (const cell of cells) {
        const element = document.createElement(tag);
        if (tag === "th") element.scope = "col";
        element.textContent = cell;
        tr.append(element);
      }
      return tr;
    };
    details.querySelectorAll("table").forEach((table, i) => {
      table.tHead.replaceChildren(row(tables[i].columns, "th"));
      table.tBodies[0].replaceChildren(...tables[i].rows.map((cells) => row(cells, "td")));
    });
  }

  class Figure {
    constructor(root) {
      this.root = root;
      this.name = root.dataset.name;
      this.content = JSON.parse(root.querySelector(".sl-data").textContent);
      this.plot = root.querySelector(".sl-plot");
      this.text = root.querySelector(".sl-text");
      this.controls = this.content.axes.map((axis) => root.querySelector(`[data-axis="${axis.name}"]`));
      this.controls.forEach((control, axis) => {
        control.disabled = false;
        control.addEventListener("input", () => this.move(axis, Number(control.value)));
      });
      this.button(".sl-reset", () => this.reset());
      this.button(".sl-link", (button) => this.copyLink(button));
      this.steady = this.content.axes.some((axis) => axis.control === "slider"); // menus alone choose between drawings
      this.indices = this.start();
      this.readAddress();
      this.draw();
      root.dataset.awake = ""; // for the scripts behind this one
    }

    button(selector, action) {
      const button = this.root.querySelector(selector);
      if (!button) return;
      button.disabled = false;
      button.addEventListener("click", () => action(button));
    }

    start() {
      return this.content.axes.map((axis) => axis.start);
    }

    move(axis, index) {
      this.indices[axis] = index;
      this.note = "";
      this.late = true;
      if (this.frame === undefined) this.catchUp();
    }

    // Inputs may come faster than frames: the first is drawn at once, of those within a frame the last.
    catchUp() {
      this.frame = undefined;
      if (!this.late) return;
      this.late = false;
      this.draw(this.steady);
      clearTimeout(this.rest);
      this.rest = setTimeout(() => this.settle(), REST_MS);
      this.frame = requestAnimationFrame(() => this.catchUp());
    }

    settle() {
      history.replaceState(null, "", this.address());
      if (!labelsFit(this.plot)) this.draw();
    }

    reset() {
      this.late = false;
      clearTimeout(this.rest);
      this.indices = this.start();
      this.note = "";
      history.replaceState(null, "", location.pathname + location.search);
      this.draw();
    }

    // #name:axis=label;axis=label
    address() {
      const settings = this.content.axes.map((axis, i) => `${axis.name}=${encodeURIComponent(axis.options[this.indices[i]])}`);
      return `#${this.name}:${settings.join(";")}`;
    }

    // Returns whether there is something new to draw.
    readAddress() {
      clearTimeout(this.rest);
      const noted = this.note;
      this.note = "";
      const [name, settings] = location.hash.slice(1).split(/:(.*)/s);
      if (!this.controls.length || name !== this.name || settings === undefined) return Boolean(noted);
      this.indices = this.start(); // a link that names some settings means the start for the others
      for (const setting of settings.split(";").filter(Boolean)) {
        const [axisName, label] = setting.split(/=(.*)/s);
        const axis = this.content.axes.findIndex((candidate) => candidate.name === axisName);
        const index = axis < 0 ? -1 : this.content.axes[axis].options.indexOf(safeDecode(label));
        if (index < 0) {
          this.indices = this.start();
          this.note = LOST;
          break;
        }
        this.indices[axis] = index;
      }
      this.root.scrollIntoView();
      return true;
    }

    async copyLink(button) {
      const link = new URL(this.address(), location.href).href;
      history.replaceState(null, "", link);
      try {
        await navigator.clipboard.writeText(link);
        button.textContent = "Link copied";
      } catch {
        button.textContent = "Link is in the address bar"; // no permission to write the clipboard
      }
      setTimeout(() => (button.textContent = "Copy link"), 2000);
    }

    draw(moved = false) {
      const width = this.plot.clientWidth; // before there is anything to lay out
      const { figure, text } = stateAt(this.content, this.indices);
      this.content.axes.forEach((axis, i) => {
        const control = this.controls[i];
        const label = axis.options[this.indices[i]];
        control.value = this.indices[i];
        if (axis.control !== "slider") return;
        control.setAttribute("aria-valuetext", label);
        control.nextElementSibling.textContent = label;
      });
      const sentence = this.note ? `${this.note} ${text}` : text;
      if (this.text.textContent !== sentence) this.text.textContent = sentence;
      const meta = figure.layout.meta;
      this.plot.setAttribute("aria-label", meta.alt);
      fillTables(this.root.querySelector(".sl-table"), meta.tables);
      if (!window.Plotly) {
        // The picture that fallback.js shows is of the start.
        this.root.toggleAttribute("data-moved", String(this.indices) !== String(this.start()));
        return;
      }
      this.plot.style.minHeight = `${figure.layout.height}px`;
      const first = !this.plot.data;
      const config = first ? { displayModeBar: false } : undefined; // it stays as it was first set
      // Margins that fit anew make Plotly draw twice. While controls move they stay as they are.
      const { l, r, b } = this.plot._fullLayout?._size ?? {};
      const room = moved && width === this.width ? { l, r, b } : undefined;
      this.width = width;
      const layout = themed(figure.layout, room, width, l);
      Plotly.react(this.plot, figure.data, layout, config).then(() => {
        if (first && !labelsFit(this.plot)) return this.draw(); // now that the margins are known
        this.root.dataset.drawn = this.indices.join(",") || "still"; // for tests and for print
      });
    }
  }

  function safeDecode(text) {
    try {
      return decodeURIComponent(text);
    } catch {
      return undefined; // a broken escape names no label
    }
  }

  const figures = [...document.querySelectorAll(".sl-figure")].map((root) => new Figure(root));
  const redraw = () => figures.forEach((figure) => figure.draw());
  new MutationObserver(redraw).observe(document.documentElement, { attributeFilter: ["data-theme"] });
  let resized;
  addEventListener("resize", () => {
    clearTimeout(resized);
    resized = setTimeout(() => {
      for (const figure of figures) if (figure.width !== figure.plot.clientWidth) figure.draw();
    }, REST_MS);
  });
  addEventListener("hashchange", () => {
    for (const figure of figures) if (figure.readAddress()) figure.draw();
  });
})();
