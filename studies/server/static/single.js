// A study in one file: shows page after page, keeps the answers in this browser, and saves them as a file.
"use strict";
(function () {
  const study = JSON.parse(document.getElementById("facts").textContent);
  const main = document.querySelector("main"), templates = document.querySelectorAll("template.step");
  const name = study.facts.study + "-" + String(study.facts.number).padStart(3, "0");
  const place = "study " + study.facts.hash + " " + study.facts.number;
  const empty = function () {
    return Object.assign({}, study.facts, { agent: navigator.userAgent, began: Date.now() / 1000, at: 0, end: "", pages: [] });
  };
  const kept = function () {  // a browser may not let a file keep anything
    try { return JSON.parse(localStorage.getItem(place)); } catch (error) { return null; }
  };
  const keep = function () {
    try { localStorage.setItem(place, JSON.stringify(record)); } catch (error) { /* then it is lost on reload */ }
  };
  let record = kept() || empty(), shown = false;

  function crc32(text) {
    let sum = -1;
    for (const byte of new TextEncoder().encode(text)) {
      sum ^= byte;
      for (let bit = 0; bit < 8; bit += 1) sum = (sum >>> 1) ^ (0xedb88320 & -(sum & 1));
    }
    return (sum ^ -1) >>> 0;
  }

  function show() {
    const template = record.end ? document.getElementById("end-" + record.end) : templates[record.at];
    if (shown) location.hash = "";  // no class of the page before
    shown = true;
    main.replaceChildren(template.content.cloneNode(true));
    main.querySelectorAll("img[data-picture]").forEach(function (one) { one.src = study.pictures[one.dataset.picture]; });
    document.title = main.querySelector("h1").textContent;
    const save = document.getElementById("save");
    if (save) {
      const text = JSON.stringify(record);
      const file = new Blob([JSON.stringify({ record: text, checksum: crc32(text) })], { type: "application/json" });
      save.href = URL.createObjectURL(file);
      save.download = name + ".json";
    }
    window.watchPage();
    const form = document.getElementById("answers"), withdraw = main.querySelector(".withdraw form");
    if (form) form.addEventListener("submit", answer);
    if (withdraw) withdraw.addEventListener("submit", forget);
    main.querySelectorAll("[inputmode=decimal]").forEach(function (one) {
      const tick = form.elements[one.name + ".none"];
      const check = function () {
        const number = /^[0-9]{1,3}([.,][0-9]{1,2})?$/.test(one.value.trim()) && parseFloat(one.value.replace(",", ".")) <= 100;
        one.setCustomValidity(tick.checked ? (one.value ? study.number : "") : (number ? "" : study.number));
      };
      one.addEventListener("input", check);
      tick.addEventListener("change", check);
      check();
    });
    window.scrollTo(0, 0);
  }

  function answer(event) {
    if (event.defaultPrevented) return;  // a picture is missing
    event.preventDefault();
    const fields = Array.from(new FormData(event.target)).filter(function (one) { return one[0] !== "token"; });
    const step = study.steps[record.at], given = Object.fromEntries(fields);
    const passed = step.expected && Object.keys(step.expected).every(function (one) { return given[one] === step.expected[one]; });
    record.pages.push(fields);
    if (given.consent === "decline") {
      record = Object.assign(empty(), { end: "declined" });
    } else if (step.name === "quiz_again" && !passed) {
      record.end = "screened";
    } else {
      record.at += step.name === "quiz" && passed ? 2 : 1;
      if (record.at === study.steps.length) record.end = "completed";
    }
    keep();
    show();
  }

  function forget(event) {
    event.preventDefault();
    record = Object.assign(empty(), { end: "withdrawn" });
    keep();
    show();
  }

  show();
})();
