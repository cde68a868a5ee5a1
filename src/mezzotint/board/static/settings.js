// The table of settings: full-text search; defaults are hidden unless requested.

import { storeInUrl, urlValue } from "./page.js";

const searched = document.getElementById("find"), defaults = document.getElementById("defaults");

export function filterSettings() {
  const terms = searched.value.trim().toLowerCase().split(/\s+/).filter(Boolean);
  for (const row of document.querySelectorAll("table.settings tbody tr")) {
    const text = row.textContent.toLowerCase();
    row.hidden = !(terms.length ? terms.every((term) => text.includes(term)) : defaults.checked || !row.classList.contains("default"));
  }
  storeInUrl({ find: searched.value || null, defaults: defaults.checked ? "1" : null });
}

if (searched && defaults) {
  searched.value = urlValue("find") || "";
  defaults.checked = urlValue("defaults") === "1";
  searched.addEventListener("input", filterSettings);
  defaults.addEventListener("change", filterSettings);
  filterSettings();
}
