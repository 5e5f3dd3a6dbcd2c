// Where a script is missing, figures show their start as a picture, and a sentence says what is missing.
// In the syntax of old browsers, on purpose: it must run where explore.js does not.
(function () {
  "use strict";

  var NUMBERS = " Its numbers stand in the table below.";
  var ASLEEP = "This figure's script could not be loaded, or this browser is too old for it." + NUMBERS;
  var UNDRAWN = "The script that draws this figure could not be loaded." + NUMBERS;

  function standIn(figure, sentence) {
    var plot = figure.querySelector(".sl-plot");
    var box = document.createElement("div");
    box.className = "sl-instead";
    // With scripts on, a browser keeps what is in <noscript> as text.
    box.innerHTML = figure.querySelector("noscript").textContent;
    box.removeChild(box.querySelector("style"));
    box.querySelector(".sl-missing").textContent = sentence;
    plot.style.display = "none";
    plot.parentNode.insertBefore(box, plot);
  }

  var figures = document.querySelectorAll(".sl-figure");
  for (var i = 0; i < figures.length; i++) {
    if (!figures[i].hasAttribute("data-awake")) standIn(figures[i], ASLEEP);
    else if (!window.Plotly) standIn(figures[i], UNDRAWN);
  }
})();
