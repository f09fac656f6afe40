"use strict";
// What pages of the console do beside htmx. Each works without this file: times are then in UTC alone, a form leads to a
// page of its own, and a page of progress is left by its link.
(() => {
  const ZONE = new Intl.DateTimeFormat("en-GB", {hour: "2-digit", minute: "2-digit", timeZoneName: "short"});
  const DAY = new Intl.DateTimeFormat("en-GB", {day: "numeric", month: "short"});
  const UTC_DAY = new Intl.DateTimeFormat("en-GB", {day: "numeric", month: "short", timeZone: "UTC"});

  // The reader's own time of a moment, with its day where that is another one; "" for whoever lives by UTC.
  function localTime(moment) {
    if (Number.isNaN(moment.getTime()) || moment.getTimezoneOffset() === 0) return "";
    const day = DAY.format(moment);
    return (day === UTC_DAY.format(moment) ? "" : `${day} `) + ZONE.format(moment);
  }

  function tellLocalTimes(root) {
    for (const time of root.querySelectorAll("time[datetime]")) {
      const local = localTime(new Date(time.dateTime));
      if (!local || time.querySelector(".here") || time.closest("button")) continue;
      // Seconds and the name of the zone may follow the moment.
      const rest = time.nextSibling?.nodeType === Node.TEXT_NODE ? /^(:\d\d)?( UTC)?/.exec(time.nextSibling.data)[0] : "";
      if (rest) {
        time.nextSibling.data = time.nextSibling.data.slice(rest.length);
        time.append(rest);
      }
      const words = document.createElement("small");
      words.className = "here";
      words.textContent = time.closest("td, th") ? local : `(${local})`;
      time.append(" ", words);
    }
    for (const field of root.querySelectorAll("input[type=datetime-local]")) {
      if (field.dataset.told) continue;
      field.dataset.told = "yes";
      const words = document.createElement("small");
      const tell = () => { words.textContent = localTime(new Date(`${field.value}Z`)); };
      field.after(words);
      field.addEventListener("input", tell);
      tell();
    }
  }

  tellLocalTimes(document);
  document.addEventListener("htmx:load", (event) => tellLocalTimes(event.detail.elt.parentElement || document));
  // What is wrong with a form is shown in its place, so that nothing that was sent is a page to go back to.
  document.addEventListener("htmx:beforeSwap", (event) => {
    if (event.detail.requestConfig.elt.matches("form")) {
      event.detail.shouldSwap = true;
      event.detail.isError = false;
    }
  });
  // The page of work that has ended gives way to its result: going back leads to where the work was asked for.
  document.addEventListener("stepfareDone", (event) => location.replace(event.detail.url));
})();
