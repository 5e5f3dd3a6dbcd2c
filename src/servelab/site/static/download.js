// Saves a figure as it stands: its drawing as PNG, its tables as CSV.
(() => {
  "use strict";

  const SCALE = 2; // sharp on paper and on dense screens
  const LONGEST_NAME = 150;

  // Figure and settings, for a figure without controls page and figure, in characters that every file system takes.
  function fileName(figure, ending) {
    const settings = [...figure.querySelectorAll("[data-axis]")].map((control) => {
      const label = control.selectedOptions ? control.selectedOptions[0].text : control.getAttribute("aria-valuetext");
      return `${control.dataset.axis}-${label}`;
    });
    const page = location.pathname.split("/").at(-1).replace(/\.html$/, "");
    const words = settings.length ? [figure.dataset.name, ...settings] : [page, figure.dataset.name];
    const safe = words.join("-").replace(/[^A-Za-z0-9._]+/g, "-").slice(0, LONGEST_NAME);
    return safe.replace(/^[-.]+|[-.]+$/g, "") + ending;
  }

  function save(url, name) {
    const link = document.createElement("a");
    link.href = url;
    link.download = name;
    link.click();
  }

  const quoted = (text) => (/[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);

  // As RFC 4180 has it; a blank line between tables.
  function csv(figure) {
    const line = (row) => [...row.cells].map((cell) => quoted(cell.textContent)).join(",") + "\r\n";
    const tables = [...figure.querySelectorAll(".sl-table table")];
    return tables.map((table) => [...table.rows].map(line).join("")).join("\r\n");
  }

  function saveTables(figure) {
    const url = URL.createObjectURL(new Blob([csv(figure)], { type: "text/csv;charset=utf-8" }));
    save(url, fileName(figure, ".csv"));
    setTimeout(() => URL.revokeObjectURL(url), 60_000); // some browsers read it later
  }

  // Not Plotly.toImage: it draws in <body> itself, where a script of the theme trips over what it adds.
  async function saveDrawing(figure) {
    const { data, layout, clientWidth: width } = figure.querySelector(".sl-plot");
    const name = fileName(figure, ".png"); // before the reader moves on
    const size = { width, height: layout.height };
    const box = document.createElement("div");
    box.className = "sl-away";
    figure.append(box);
    const page = getComputedStyle(document.body).backgroundColor;
    const copy = structuredClone({ data, layout: { ...layout, ...size, paper_bgcolor: page } });
    await Plotly.newPlot(box, copy.data, copy.layout, { staticPlot: true });
    const svg = Plotly.Snapshot.toSVG(box, "png", SCALE);
    Plotly.purge(box);
    box.remove();
    const canvas = document.createElement("canvas");
    save(await Plotly.Snapshot.svgToImg({ ...size, format: "png", scale: SCALE, canvas, svg, promise: true }), name);
  }

  function wake(figure, selector, action) {
    const button = figure.querySelector(selector);
    button.addEventListener("click", () => action(figure));
    button.disabled = false;
  }

  for (const figure of document.querySelectorAll(".sl-figure")) {
    wake(figure, ".sl-csv", saveTables);
    if (window.Plotly && "awake" in figure.dataset) wake(figure, ".sl-png", saveDrawing);
  }
})();
