import { follow, renew, send, showMessage } from "./page.js";

const list = document.getElementById("queue");
follow("/live/queue", () => renew(list));

list.addEventListener("click", async (event) => {
  const button = event.target.closest("button[data-act]");
  if (!button) return;
  button.disabled = true;
  const { act: action, place } = button.dataset, { name } = button.closest("tr").dataset;
  try {
    showMessage((await send("/api/queue", { action, name, place })).message);
    await renew(list);
  } catch (error) { showMessage(error.message); button.disabled = false; }
});
document.getElementById("run-queue")?.addEventListener("click", async ({ target }) => {
  target.disabled = true;
  try {
    showMessage((await send("/api/queue/run", { devices: document.getElementById("devices").value })).message);
    await renew(list);
  } catch (error) { showMessage(error.message); }
  target.disabled = false;
});
