// Adds times, focus losses and the check of the pictures; every page works without it.
"use strict";
(function () {
  let start = 0, losses = 0, helps = 0, sent = false;
  window.addEventListener("blur", function () { losses += 1; });
  window.addEventListener("pageshow", function () { sent = false; });
  window.watchPage = function () {
    const form = document.getElementById("answers");
    const errors = document.querySelector(".errors");
    if (errors) errors.focus();
    if (!form || !form.elements.javascript) return;
    start = performance.now();
    losses = helps = 0;
    sent = false;
    form.elements.javascript.value = "1";
    document.querySelectorAll("details.method").forEach(function (one) {
      one.addEventListener("toggle", function () { if (one.open) helps += 1; });
    });
    const broken = function () {
      return Array.from(form.querySelectorAll("img")).filter(function (one) { return one.complete && !one.naturalWidth; });
    };
    form.addEventListener("submit", function (event) {
      const missing = broken(), tick = form.elements.pictures_missing;
      if (sent || (missing.length && tick && !tick.checked)) {
        event.preventDefault();
        missing.forEach(function (one) { one.src = one.src; });
        if (missing.length) { tick.focus(); tick.parentElement.classList.add("wrong"); }
        return;
      }
      sent = true;
      form.elements.seconds.value = String(Math.round((performance.now() - start) / 1000));
      form.elements.focus_losses.value = String(losses);
      form.elements.helps.value = String(helps);
    });
  };
  window.watchPage();
})();
