// Adds times, focus losses, the check of the pictures, and answers that stay over a reload; every page works without it.
"use strict";
(function () {
  let start = 0, losses = 0, helps = 0, sent = false;
  window.addEventListener("blur", function () { losses += 1; });
  window.addEventListener("pageshow", function () { sent = false; });
  // What is chosen on a page that is not sent yet: kept in this tab, for this page only.
  function draft(key, form) {
    try {
      const kept = sessionStorage.getItem(key);
      sessionStorage.clear();
      if (!form) return;
      const inputs = Array.from(form.querySelectorAll("input:not([type=hidden]), textarea"));
      const states = JSON.parse(kept || "[]");
      inputs.forEach(function (one, index) {
        if (!states[index]) return;
        if (one.type === "radio" || one.type === "checkbox") one.checked = states[index] === "on"; else one.value = states[index].slice(1);
      });
      const keep = function () {
        sessionStorage.setItem(key, JSON.stringify(inputs.map(function (one) {
          return one.type === "radio" || one.type === "checkbox" ? (one.checked ? "on" : "off") : "=" + one.value;
        })));
      };
      form.addEventListener("input", keep);
      keep();
    } catch (error) { /* a browser that keeps nothing */ }
  }
  window.watchPage = function () {
    const form = document.getElementById("answers");
    const errors = document.querySelector(".errors");
    if (errors) errors.focus();
    if (!form || !form.elements.javascript) { draft("", null); return; }
    start = performance.now();
    losses = helps = 0;
    sent = false;
    form.elements.javascript.value = "1";
    if (!form.querySelector("fieldset:disabled")) draft("draft " + location.pathname + form.elements.token.value + form.elements.step.value, form);
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
        if (missing.length && tick) { tick.focus(); tick.parentElement.classList.add("wrong"); }
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
