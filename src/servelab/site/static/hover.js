// A link to a term or to a paper says what it is, on hover and on focus; Escape hides it. The pointer may move onto it.
(() => {
  "use strict";
  const links = document.querySelectorAll("a.sl-hover[title], .bibtex-citation a[title]");
  if (!links.length) return;
  const tip = Object.assign(document.createElement("div"), { id: "sl-tip", role: "tooltip", hidden: true });
  document.querySelector("main").append(tip);
  let shown, timer;

  function show(link) {
    clearTimeout(timer);
    if (shown) hide();
    shown = link;
    tip.textContent = link.dataset.tip;
    tip.hidden = false;
    link.setAttribute("aria-describedby", tip.id);
    const box = [...link.getClientRects()].at(-1); // of a link on two lines, the second
    const right = document.documentElement.clientWidth - tip.offsetWidth - 8;
    const below = box.bottom + 4;
    const fits = below + tip.offsetHeight < innerHeight;
    tip.style.left = `${Math.max(8, Math.min(box.left, right))}px`;
    tip.style.top = `${fits ? below : box.top - tip.offsetHeight - 4}px`;
  }

  function hide() {
    clearTimeout(timer);
    shown?.removeAttribute("aria-describedby");
    shown = undefined;
    tip.hidden = true;
  }

  const hideSoon = () => (timer = setTimeout(hide, 150));
  for (const link of links) {
    link.dataset.tip = link.title;
    link.removeAttribute("title"); // else the browser would show it beside the tooltip
    link.addEventListener("mouseenter", () => show(link));
    link.addEventListener("focus", () => show(link));
    link.addEventListener("mouseleave", hideSoon);
    link.addEventListener("blur", hide);
  }
  tip.addEventListener("mouseenter", () => clearTimeout(timer));
  tip.addEventListener("mouseleave", hideSoon);
  addEventListener("keydown", (event) => event.key === "Escape" && hide());
  addEventListener("scroll", hide, { passive: true });
})();
