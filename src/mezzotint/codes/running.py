"""Codes E15.. to E19..: runs, training, storage, processes. See `CODES` in `mezzotint.codes`."""

from __future__ import annotations

CODES: dict[str, str] = {
    "E1500": "The run folder or a checkpoint in it cannot be resumed.\nNothing was changed.",
    "E1501": "A checkpoint is damaged: a file is missing, or its size or SHA-256 differs from the manifest.\n"
    "Nothing was loaded from it. `run.resume=auto` uses the newest valid checkpoint.",
    "E1502": "The checkpoint contains other tensors than this run trains.\n"
    "The model, the trained parts or the use of EMA differ. Start a new run from the exported weights.",
    "E1504": "Another process is writing to this run folder.\nThe lock is released when that process ends.",
    "E1505": "`run.resume=never` needs a new run folder, and this one contains checkpoints.",
    "E1506": "Every checkpoint in the run folder is damaged.\nA run never starts over in such a folder by itself.",
    "E1507": "The requested checkpoint does not exist.",
    "E1510": "A setting differs from the checkpoint's; `run.allow_change` can accept it.\n"
    "The history records accepted changes. `run.allow_change=[optim]` accepts a whole section; `run.name=NAME` starts "
    "a new run and leaves this one as it is.",
    "E1511": "A setting differs from the checkpoint's in a way that a run cannot be resumed across.\n"
    "Examples: another model, seed or training target. Start a new run with `run.name=NAME`; its `model.path` can be "
    "an export of this run.",
    "E1513": "The data set is not the one that the checkpoint was trained on.\n"
    "`run.name=NAME` starts a new run next to it.",
    "E1514": "A frozen part (VAE, text encoder) has other weights than at the checkpoint.\n"
    "Random weights also change with torch's version.",
    "E1515": "The folder has no manifest.json of a run that this version can read.",
    "E1516": "`mezzotint verify` found a difference from the recorded inputs of the run.\n"
    "Later steps were not checked.",
    "E1517": "`mezzotint prove`: a run that is killed and resumed is not bitwise identical to an uninterrupted one.\n"
    "On a GPU `run.deterministic=true` selects deterministic kernels; on a CPU this is a bug.",
    "E1518": "`mezzotint prove` could not compare.\nOne of its short runs failed, or it was started by a launcher.",
    "E1519": "Images that are one latent wide at the network's lowest resolution give wrong results in bf16 on a CPU.\n"
    "torch's convolution with a stride of 2 is wrong in bf16 (measured with torch 2.13).",
    "E1520": "The run folder vanished, was replaced, or became read-only while the run wrote to it.\n"
    "The run ended within a step and created nothing there. Restore the folder, or start again with another "
    "run.folder.",
    "E1521": "An older, unreleased version wrote the run folder or the checkpoint.\n"
    "Older formats are not converted. Check out the commit that the message names to continue or export the run; a "
    "new run here can start from the exported weights (`model.path`).",
    "E1522": "The callbacks or the loss function are not those that the checkpoint was trained with.\n"
    "They are recorded by name and by a hash of their source. Changed ones can be accepted with "
    "`run.allow_change=[code]`.",
    "E1600": "Training diverged, or a trained part does not change.\n"
    "The newest checkpoint was written before it happened.",
    "E1601": "A trained part gets no gradient.",
    "E1602": "The weights of a trained part have not changed after three updates.\n"
    "Its learning rate is 0, or too small for the type of the weights.",
    "E1603": "Weights with non-finite values are never saved or exported.",
    "E1604": "Too many steps had a loss or gradient that was not finite.\n"
    "Each was skipped and recorded in bad_steps.jsonl. Usual causes: a learning rate that is too high, fp16 where "
    "bf16 or fp32 is needed, a damaged image. See docs/guides/troubleshooting.md.",
    "E1670": "`run.weight_dtype: pure` keeps no float32 master weights, and `run.runtime=fsdp` always has them.",
    "E1700": "The disk is full or cannot be written.\nEarlier checkpoints are untouched.",
    "E1701": "A file could not be written: the disk or quota is full, or the folder is read-only.\n"
    "Files are renamed into place when complete, so existing files are untouched.",
    "E1702": "The user has no write permission, or the disk is mounted read-only.",
    "E1703": "A file has the run folder's name, or no folder can be created there.",
    "E1704": "The last checkpoint of the run could not be saved.\n"
    "Earlier ones are untouched; make room and start the same command again.",
    "E1705": "A log (metrics.jsonl, TensorBoard, preview images, Weights & Biases) could not be written.\n"
    "Training continues and keeps trying silently; only the unwritten entries are missing.",
    "E1708": "The disk of the cache is full.",
    "E1710": "`mezzotint check`: two checkpoints do not fit on the disk of the run folder.\n"
    "The second is written before the first is deleted, so the run could save only once.",
    "E1711": "`mezzotint check`: the missing cache entries do not fit on its disk.\n"
    "data.cache.dtype=fp16 halves it, data.cache.content=sample halves the latents.",
    "E1712": "The port for the communication of a run's processes is used by another program, such as a second run.",
    "E1720": "The index of the data set, in a folder below data.cache.path, cannot be written.\n"
    "The images are untouched.",
    "E1750": "The process or device ran out of memory.\n"
    "run.micro_batch keeps the mathematics the same; run.gradient_checkpointing trades time for memory. See "
    "docs/guides/troubleshooting.md.",
    "E1751": "The model does not fit into the device's memory.\n`mezzotint check` shows the memory of each part, and "
    "`mezzotint check --fit` the settings that fit. See docs/guides/troubleshooting.md.",
    "E1752": "`run.offload.blocks` without an adapter works in one process only.\n"
    "With several, shard the weights with run.runtime=fsdp instead.",
    "E1753": "The system refused the locked host memory that `run.offload.blocks` needs.\n"
    "Containers and shells limit it (`ulimit -l`).",
    "E1754": "`mezzotint check --fit`: no settings make the run fit on this card.",
    "E1800": "Another process of this run has ended, so the step could not be finished.\n"
    "Start the same command again: it continues from the newest checkpoint.",
    "E1801": "Several processes were started for `run.runtime=single`.\n`run.runtime=auto` uses `ddp` under torchrun.",
    "E1802": "A GPU was requested, and torch finds none.\n"
    "There is no driver, torch was built without CUDA, or no device is visible to this process.",
    "E1803": "A batch has fewer samples than the run has processes.",
    "E1804": "Another process of this run died, hung, or never started.\n"
    "See the message of that process for the reason. The next start continues from the newest checkpoint.",
    "E1805": "`run.runtime=ddp` and `fsdp` need a launcher, torchrun or accelerate launch.",
    "E1810": "A process that loads data ended early.\n"
    "It was killed (often because memory or shared memory, /dev/shm, ran out) or crashed while decoding. The next "
    "start continues from the newest checkpoint. data.workers=0 loads in the training process.",
    "E1820": "More images than data.max_skipped allows turned out to be damaged during the run.\n"
    "With data.on_corrupt=zero_weight they stay in their batches with weight 0; up to 20 are always allowed.",
    "E1830": "`optim.in_backward` works in one process only: several must sum their gradients first.\n"
    "`run.runtime=fsdp` shards the weights instead.",
    "E1831": "An image turned out to be damaged when it was first decoded.\n"
    "With data.verify=on_first_use, images are not decoded before. Repair or remove it, set data.verify=on_start, "
    "which decodes every image before the run, or data.on_corrupt=zero_weight, which gives it weight 0.",
    "E1840": "The package that reads this kind of object storage address is not installed.\n"
    "s3 needs 'mezzotint[object-storage]'; other schemes need their fsspec package: gcsfs for gs://, adlfs for az://.",
    "E1841": "Something on object storage cannot be read.\n"
    "It does not exist, the credentials do not allow it, or the network failed five times within half a minute. The "
    "storage's library finds credentials in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, ~/.aws, the machine's role, "
    "or fsspec's settings; AWS_ENDPOINT_URL names another server. Every run records its recipe and addresses, so no "
    "credentials belong there.",
    "E1842": "This data.format reads local disks only, and the data set is on object storage.",
    "E1843": "A sample on object storage has changed since the data set was indexed.\n"
    "It is not trained. The next start indexes it again, with another fingerprint of the data set.",
    "E1844": "A cache on object storage could not be written, five times within half a minute.\n"
    "New entries are in ~/.cache/mezzotint/carried; the next start uploads them.",
    "E1845": "A row of a cache on object storage is damaged.",
    "E1846": "The run folder is not on storage that all machines of the run can access.\n"
    "Each process writes its part of a checkpoint (`run.save.sharded`).",
    "E1860": "`mezzotint bench --against=stock` cannot compare this recipe.\n"
    "The recipe uses features that the loop of diffusers' train_text_to_image.py does not have.",
    "E1880": "`run.shard.group` does not divide the number of processes.\nEach group holds one copy of the model.",
    "E1881": "`run.whole_epochs` needs at least one epoch within `run.steps`.",
    "E1900": "A signal stopped the run after it had saved.\nThe printed command resumes it.",
    "E1940": "`mezzotint board` needs the extra `board`.\n`pip install 'mezzotint[board]'`; no other command needs it.",
    "E1941": "`mezzotint board --host=ADDRESS` needs a password.\n"
    "Other machines can then access a page that shows files and starts runs, and the connection is not encrypted. An "
    "SSH tunnel to 127.0.0.1 is, and needs no password.",
    "E1942": "The board only accepts names of this machine and requests of its own pages.\n"
    "Otherwise another site could act in your name. Add `--allow-host=NAME` for a host name of yours.",
    "E1943": "A folder given to `mezzotint board` or `mezzotint report` does not exist, or is not a run folder.",
    "E1944": "The board cannot listen at this address: the port is in use, or the address is not this machine's.\n"
    "Without `--port` a free port is used.",
    "E1945": "The board was started with `--read-only`.\n"
    "The command shown with each action does the same in a terminal.",
    "E1946": "The run cannot do that in its current state.\n"
    "Previews, saving and stopping are possible while it trains, resuming after it was stopped or killed.",
    "E1947": "A process started by the board ended immediately.\n"
    "Run the same command in a terminal to see all of its output.",
    "E1948": "These data are not in a folder that the board shows.",
    "E1949": "The board does not save or start this.\n"
    "A recipe is saved as a new .yaml file below the board's first folder; an imported one must be saved before it is "
    "checked or started. A run that is started from the board writes only below the board's folders.",
    "E1956": "The tags or notes of a run are not acceptable, or its notes.json cannot be read.\n"
    "A run has up to 20 tags of up to 40 characters, and notes of up to 20,000.",
    "E1957": "The notes of a run were changed in another window of the page.\n"
    "Nothing was saved. The page shows both texts; saving again replaces the other one.",
    "E1958": "The run cannot be moved to the trash or back.\n"
    "A run that trains or waits, or that a waiting or paused entry of the queue trains, stays. The page renames within "
    "one disk and follows no links; `mv` moves everything else.",
    "E1960": "The queue has no such entry, or the entry's state does not allow the action.\n"
    "`mezzotint queue list` shows the entries with their states. What waits or runs can be paused, what is paused or "
    "has failed can be resumed, and what does not run can be removed.",
    "E1961": "An entry of the queue trains into the same run folder, or has the same name.",
    "E1962": "A link or a file is in the place of the queue's folder, or of a folder in it.\n"
    "The queue writes into these folders, and follows no link out of them.",
    "E1970": "The package ImageHash, which finds near duplicates, is not installed.\n"
    "The rest of `mezzotint doctor` works without it.",
}
