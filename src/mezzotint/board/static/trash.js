import { renew, send, showMessage } from "./page.js";

const list = document.getElementById("trash");
list.addEventListener("click", async ({ target }) => {
  if (target.tagName !== "BUTTON" || !target.value) return;
  target.disabled = true;
  try { showMessage((await send("/api/restore", { runs: [target.value] })).message); } catch (error) { showMessage(error.message); }
  await renew(list).catch((error) => showMessage(error.message));
});
