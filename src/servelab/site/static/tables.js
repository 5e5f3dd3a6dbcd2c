// A table wider than the page scrolls in its own box; the keyboard must reach that box to scroll it.
(() => {
  "use strict";
  const mark = () => {
    for (const box of document.querySelectorAll(".pst-scrollable-table-container")) {
      if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
      else box.removeAttribute("tabindex");
    }
  };
  mark();
  addEventListener("resize", mark);
})();
