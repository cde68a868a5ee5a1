// Shared by all pages: requests to the server, live updates, copy buttons, light and dark theme.

const data = document.getElementById("embedded");
/** The data embedded in a report; null on a page with a server. */
export const embedded = data ? JSON.parse(data.textContent) : null;

export async function ask(url, options) {
  const answer = await fetch(url, options);
  const text = await answer.text();
  if (!answer.ok && (answer.headers.get("content-type") || "").includes("json")) {
    const { error, code } = JSON.parse(text);
    throw Object.assign(new Error(error), { code });
  }
  if (!answer.ok) throw new Error(text.trim().split("\n")[0] || `the server answered ${answer.status}`);
  return text;
}

export const askJSON = async (url, options) => JSON.parse(await ask(url, options));

export const send = (url, value) => askJSON(url, {
  method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(value),
});

let hideTimer = 0;

/** Shows a message for a few seconds, also to screen readers. */
export function showMessage(text) {
  const toast = document.getElementById("toast");
  toast.textContent = localMessage(text);
  toast.hidden = !text;
  clearTimeout(hideTimer);
  hideTimer = setTimeout(() => { toast.hidden = true; }, 8000);
}

/** Creates an element: el("a", {href: "/"}, "text", child). Text is never parsed as markup. */
export function el(name, facts = {}, ...inside) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(facts)) {
    if (key in element && typeof value !== "string") element[key] = value;
    else element.setAttribute(key, value);
  }
  element.append(...inside.filter((one) => one !== null && one !== undefined));
  return element;
}

const two = (number) => String(number).padStart(2, "0");
const day = (at) => `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
const clock = (at) => `${two(at.getHours())}:${two(at.getMinutes())}`;

/** Converts the times in a part of the page to the viewer's time zone; their tooltips show UTC. */
export function localTimes(part) {
  for (const one of part.querySelectorAll("time:not([title])")) {
    const at = new Date(one.dateTime), hasSeconds = /:\d\d:/.test(one.textContent);
    if (Number.isNaN(at.getTime())) continue;
    one.title = one.textContent.endsWith("Z") ? one.textContent.replace("T", " ").replace("Z", " UTC") : one.textContent;
    one.textContent = `${day(at)} ${clock(at)}${hasSeconds ? `:${two(at.getSeconds())}` : ""}`;
  }
}
/** A message with its times in the viewer's time zone. */
const localMessage = (text) => text.replace(/\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ/g, (time) => {
  const at = new Date(time);
  return Number.isNaN(at.getTime()) ? time : `${day(at)} ${clock(at)}`;
});
localTimes(document);

/** Reloads a part of the page and keeps its open sections, selections, focus and scroll position. */
export async function renew(part) {
  const parsed = new DOMParser().parseFromString(await ask(part.dataset.part), "text/html");
  const open = new Set([...part.querySelectorAll("details[open] summary")].map((one) => one.textContent));
  const chosen = new Set([...part.querySelectorAll("input:checked")].map((one) => one.value));
  const active = part.contains(document.activeElement) ? document.activeElement : null;
  const scrolled = part.firstElementChild ? part.firstElementChild.scrollTop : 0;
  const atEnd = part.firstElementChild
    && scrolled + part.firstElementChild.clientHeight >= part.firstElementChild.scrollHeight - 4;
  part.replaceChildren(...parsed.body.childNodes);
  localTimes(part);
  for (const one of part.querySelectorAll("details")) {
    one.open = open.has(one.querySelector("summary").textContent);
  }
  for (const one of part.querySelectorAll("input[type=checkbox]")) one.checked = chosen.has(one.value);
  if (active && active.value) {
    const again = [...part.querySelectorAll(active.tagName)].find((one) => one.value === active.value);
    if (again) again.focus();
  }
  const first = part.firstElementChild;
  if (first) first.scrollTop = atEnd ? first.scrollHeight : scrolled;
}

/** Calls `changed` with the names of changed parts while the page is open. */
export function follow(url, changed) {
  const source = new EventSource(url);
  let parts = new Set(), busy = false;
  const work = async () => {
    if (busy) return;
    busy = true;
    while (parts.size) {
      const now = parts;
      parts = new Set();
      try { await changed(now); } catch (error) { showMessage(`Live updates failed: ${error.message}`); }
    }
    busy = false;
  };
  source.onmessage = (event) => {
    for (const part of JSON.parse(event.data).parts) parts.add(part);
    work();
  };
  source.onerror = () => document.documentElement.classList.add("cut-off");
  source.onopen = () => document.documentElement.classList.remove("cut-off");
  return source;
}

const query = new URLSearchParams(location.search);
export const urlValue = (name) => query.get(name);

/** Stores a part of the view in the URL, to survive reloads and copies of the URL. */
export function storeInUrl(values) {
  for (const [name, value] of Object.entries(values)) {
    if (value === null || value === "") query.delete(name);
    else query.set(name, value);
  }
  if (!embedded) history.replaceState(null, "", `${location.pathname}?${query}${location.hash}`);
}

document.addEventListener("click", async (event) => {
  const copy = event.target.closest("button.copy");
  if (copy) {
    const text = copy.parentElement.querySelector("code").textContent;
    try {
      await navigator.clipboard.writeText(text);
      showMessage("Copied");
    } catch {
      getSelection().selectAllChildren(copy.parentElement.querySelector("code"));
      showMessage("Selected; press Ctrl-C to copy");
    }
  }
  if (event.target.id === "theme") {
    const root = document.documentElement;
    const dark = root.dataset.theme
      ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    try { localStorage.setItem("mezzotint-theme", root.dataset.theme); } catch { /* only for this page */ }
    document.dispatchEvent(new Event("theme"));
  }
});
