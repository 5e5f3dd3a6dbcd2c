// A page is printed in light colours, whatever it is read in: dark ink on white paper.
(() => {
  "use strict";
  const root = document.documentElement;
  let theme;
  addEventListener("beforeprint", () => {
    theme = root.dataset.theme;
    root.dataset.theme = "light";
  });
  addEventListener("afterprint", () => {
    root.dataset.theme = theme;
  });
})();
