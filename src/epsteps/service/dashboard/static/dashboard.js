// A page that cannot ask for news says so, and takes it back when it can again.
"use strict";
for (const [event, lost] of [["htmx:sendError", true], ["htmx:responseError", true], ["htmx:beforeOnLoad", false]]) {
  document.addEventListener(event, (told) => {
    const answered = told.detail.xhr && told.detail.xhr.status > 0 && told.detail.xhr.status < 400;
    document.getElementById("lost").hidden = !lost && answered;
  });
}
