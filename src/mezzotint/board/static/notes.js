// The tags and notes of a run, edited in a form; what another window saves meanwhile is shown, never replaced unseen.

import { ask, el, renew, send, showMessage } from "./page.js";

const box = document.getElementById("p-notes"), run = box.dataset.run;
const form = () => document.getElementById("edit-notes");
const fields = () => form() ? [form().elements.tags, form().elements.text] : [];
const isEdited = () => fields().some((one) => one.value !== one.defaultValue);
const tagsOf = (text) => text.split(",").map((one) => one.trim()).filter(Boolean);

/** Reloads the section, unless there are unsaved changes in it. */
export async function renewNotes() { if (!isEdited()) await renew(box); }

async function save() {
  const { tags, text } = form().elements, now = tagsOf(tags.value), before = tagsOf(tags.defaultValue);
  const facts = { runs: [run], add: now.filter((one) => !before.includes(one)), remove: before.filter((one) => !now.includes(one)) };
  if (text.value !== text.defaultValue) Object.assign(facts, { text: text.value, text_before: text.defaultValue });
  try {
    showMessage((await send("/api/notes", facts)).message);
    await renew(box);
  } catch (error) {
    showMessage(error.message);
    if (error.code === "E1957") await showOther();
  }
}

/** Shows the notes that another window has saved; the next save replaces them. */
async function showOther() {
  const parsed = new DOMParser().parseFromString(await ask(box.dataset.part), "text/html");
  const other = parsed.querySelector("textarea")?.defaultValue ?? "", { text } = form().elements, mine = text.value;
  const use = el("button", { type: "button", class: "plain" }, "Use these instead of mine");
  use.addEventListener("click", () => { text.value = other; document.getElementById("other-notes").replaceChildren(); text.focus(); });
  text.defaultValue = other;
  text.value = mine;
  document.getElementById("other-notes").replaceChildren(el("div", { class: "problem" },
    el("strong", {}, "Saved in another window meanwhile:"), el("p", { class: "free" }, other || "(no notes)"),
    el("p", {}, "Save replaces them with yours. ", use)));
}

const ACTIONS = {
  archive: ["/api/notes", { archived: true }], unarchive: ["/api/notes", { archived: false }], delete: ["/api/trash", {}],
  restore: ["/api/restore", {}],
};

box.addEventListener("submit", (event) => { event.preventDefault(); save(); });
box.addEventListener("click", async ({ target }) => {
  if (!ACTIONS[target.dataset.runAction]) return;
  const [address, facts] = ACTIONS[target.dataset.runAction];
  target.disabled = true;
  try {
    showMessage((await send(address, { runs: [run], ...facts })).message);
    if (address === "/api/notes") await renewNotes();
    else location.href = address === "/api/trash" ? "/" : "/trash";
  } catch (error) { showMessage(error.message); }
  target.disabled = false;
});
addEventListener("beforeunload", (event) => { if (isEdited()) event.preventDefault(); });
