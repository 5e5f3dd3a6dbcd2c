// A page is printed in light colours, whatever it is read in, and its drawings shrink to the paper: there is no time
// to draw them again.
(() => {
  "use strict";
  const root = document.documentElement;
  const boxes = () => document.querySelectorAll(".sl-plot .svg-container");
  let theme;

  addEventListener("beforeprint", () => {
    theme = root.dataset.theme;
    root.dataset.theme = "light";
    for (const box of boxes()) {
      const { clientWidth: width, clientHeight: height } = box;
      box.style.maxWidth = `${width}px`;
      box.style.aspectRatio = `${width} / ${height}`;
      for (const svg of box.querySelectorAll(".main-svg")) svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    }
  });

  addEventListener("afterprint", () => {
    root.dataset.theme = theme;
    for (const box of boxes()) {
      box.style.maxWidth = box.style.aspectRatio = "";
      for (const svg of box.querySelectorAll(".main-svg")) svg.removeAttribute("viewBox");
    }
  });
})();
