// Plays the sliders that have a button for it: moves the slider as its reader would, one step after another.
(() => {
  "use strict";

  const STEP_MS = 1200; // explore.py has the same for Jupyter
  const calm = matchMedia("(prefers-reduced-motion: reduce)"); // then nothing moves by itself

  function wake(button) {
    const slider = document.getElementById(button.getAttribute("aria-controls"));
    const atEnd = () => slider.value === slider.max;
    let timer;

    function pause() {
      clearInterval(timer);
      timer = undefined;
      button.textContent = calm.matches ? "Next step" : "Play";
    }

    function step() {
      slider.value = atEnd() ? 0 : Number(slider.value) + 1;
      slider.dispatchEvent(new Event("input", { bubbles: true }));
    }

    function play() {
      step(); // at once, as an answer to the press
      button.textContent = "Pause";
      timer = setInterval(() => {
        if (!atEnd()) step();
        if (atEnd()) pause();
      }, STEP_MS);
    }

    button.addEventListener("click", () => {
      if (calm.matches) step();
      else if (timer) pause();
      else play();
    });
    // The reader takes over. What this script does itself is not trusted.
    const takeOver = (event) => {
      if (event.isTrusted && event.target !== button) pause();
    };
    for (const kind of ["pointerdown", "input", "click"]) button.closest(".sl-controls").addEventListener(kind, takeOver);
    addEventListener("hashchange", pause);
    calm.addEventListener("change", pause);
    pause();
    button.disabled = false;
  }

  document.querySelectorAll("[data-awake] .sl-play").forEach(wake);
})();
