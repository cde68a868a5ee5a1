"""Codes E15.. to E19..: runs, training, storage, processes."""

from __future__ import annotations

CODES: dict[str, str] = {
    "E1500": "The run folder or a checkpoint in it cannot be continued. Nothing was changed.",
    "E1501": "A file of the checkpoint is missing, has another size, or its SHA-256 is not the manifest's. Nothing "
    "was loaded from it. `run.resume=auto` takes the newest checkpoint that is whole.",
    "E1502": "The checkpoint holds other tensors than this run trains: another model, other trained parts, or with "
    "and without an average. Start a new run from the exported weights instead.",
    "E1504": "Another process is writing into this run folder. Two runs in one folder would destroy each other. When "
    "that process is dead the lock is free by itself.",
    "E1505": "`run.resume=never` insists on a new run, but the run folder holds checkpoints. Go on with them, or "
    "choose another `run.name`.",
    "E1506": "Every checkpoint in the run folder is damaged; the message says what is wrong with each. A run never "
    "starts from zero in such a folder by itself.",
    "E1507": "A checkpoint was asked for and is not there. The message lists those that are.",
    "E1510": "A setting differs from the one the checkpoint was made with, so that going on would be another run than "
    "the one that was begun. Put it back; or name it in `run.allow_change`, which the history then records: "
    "`run.allow_change=[optim.lr]`, or a whole section, `run.allow_change=[optim]`; or begin a new run beside it with "
    "`run.name=NAME`, which leaves this one as it is.",
    "E1511": "A setting differs from the one the checkpoint was made with, and nothing can go on across this change: "
    "another model, another seed, another target of training. Put it back; or begin a new run beside it with "
    "`run.name=NAME`; or one that starts from these weights, whose `model.path` is an export of this run.",
    "E1513": "The pictures, captions or repeats are not those that the checkpoint was trained on, so the run would "
    "not go on as it was. `run.allow_change=[data]` accepts that, and the history records it; `run.name=NAME` begins "
    "a new run beside it.",
    "E1514": "A frozen part (VAE, text encoder) has other weights than at the checkpoint. `run.allow_change=[model]` "
    "accepts that, and the history records it. Random weights also change with torch's version.",
    "E1515": "A folder has no manifest.json of a run that this version can read. It is written when a run starts, and "
    "says by hashes what the run is made of; runs that began with an earlier version get one when they go on.",
    "E1516": "`mezzotint verify` found something that is not what the run was made of: its recipe, a checkpoint, "
    "weights, or a sample, which the message names. What comes after it was not looked at.",
    "E1517": "`mezzotint prove` found that a run which is killed and gone on with does not end with the same bits as "
    "the run in one go, with this recipe on this machine. On a GPU `run.deterministic=true` takes kernels that add up "
    "in one order; on a CPU this is a bug.",
    "E1518": "`mezzotint prove` could not compare: one of its short runs failed with the error above it, or a launcher "
    "started several of it: `--processes=N` starts N processes for each of its runs.",
    "E1519": "Pictures that are one latent wide before the denoiser's last down-sampling, in bf16 on a CPU: torch's "
    "convolution with a stride of 2 gives there what nobody has computed (measured with torch 2.13), finite numbers "
    "among it. Larger buckets and float32 are sound.",
    "E1520": "The run folder has gone while the run was writing into it, another one lies in its place, or it may only "
    "be read. The run has ended within a step; nothing was made anew in that place, so that nothing of another run is "
    "touched. Put the folder back, or start again with another run.folder.",
    "E1600": "Training diverged: values that are not finite, or a part that was to be trained and does not move. The "
    "newest checkpoint was written before it happened.",
    "E1601": "A part was to be trained, but no gradient reaches it: it takes no part in the loss, or all that would "
    "is frozen.",
    "E1602": "A part was to be trained, but after three updates its weights are the same to the bit. Its learning "
    "rate is 0, or too small for the type of the weights.",
    "E1603": "Weights that are not finite are never saved or exported. The newest checkpoint was written before they "
    "came about.",
    "E1604": "Too many steps had a loss or gradient that was not finite. Each was skipped and named in "
    "bad_steps.jsonl with its samples and timesteps. Usual causes: a rate that is too high, fp16 where bf16 or fp32 "
    "is needed, a damaged picture.",
    "E1670": "`run.weight_dtype: alone` keeps no float32 masters, and sharded parameters always are their own "
    "masters, in float32. Take `same`, which computes in the smaller type as well.",
    "E1700": "The disk is full or cannot be written. Earlier checkpoints are untouched.",
    "E1701": "A file could not be written: the disk is full, the quota is used up, or the folder is read-only. Files "
    "are written aside and renamed when complete, so what was there before is untouched.",
    "E1702": "The place may not be written by this user, or the disk is mounted read-only.",
    "E1703": "A file lies where the run folder or one of its folders must be, or no folder can be made there. A run "
    "needs a folder of its own: move the file away, or choose another run.folder or run.name.",
    "E1704": "The last checkpoint of the run could not be saved. Earlier ones are untouched; make room and start the "
    "same command again.",
    "E1705": "A log (metrics.jsonl, TensorBoard events, preview pictures) could not be written. Training goes on "
    "without it, and tries again in silence: what could not be written is missing there and nowhere else.",
    "E1708": "The disk of the cache is full. The message says how many bytes were needed and how many are free. Make "
    "room, or set data.cache.path to a folder on another disk. Entries that were finished are kept: the next start "
    "goes on from there.",
    "E1710": "Found by `mezzotint check`: two checkpoints do not fit on the disk of the run folder. The second is "
    "written beside the first, which goes only afterwards, so the run could save once and then never again.",
    "E1711": "Found by `mezzotint check`: what the cache lacks does not fit on its disk. data.cache.dtype=fp16 halves "
    "it, data.cache.content=sample halves the latents; data.cache.path takes it to another disk.",
    "E1712": "Several processes of a run meet at a port of the first one's machine, and another program listens there: "
    "a second run, perhaps. Give another port: `torchrun --master-port=PORT`, or the variable MASTER_PORT.",
    "E1720": "Before a run, every picture is looked at once, and what was found (size, content, caption) is kept in a "
    "folder below data.cache.path, so that the next start need not look again. That folder cannot be written: make "
    "room, change its rights, or set data.cache.path to another folder. The pictures are untouched.",
    "E1750": "The device ran out of memory. Lower run.micro_batch (the mathematics stays the same), switch on "
    "run.recompute, or take a smaller data.resolution.",
    "E1751": "The device's memory is full. `run.micro_batch` lowers what it holds at once without changing the "
    "mathematics; `run.recompute.enabled` trades time for memory; `mezzotint check` shows what needs how much.",
    "E1752": "`run.offload.blocks` without an adapter keeps gradients and the update on the host of one process, and "
    "several were started. Start one, train an adapter, or share the weights with run.runtime=fsdp instead.",
    "E1753": "The host did not lock the memory from where blocks are sent to the device. Containers and shells limit "
    "it (`ulimit -l`); or so much memory is not free.",
    "E1800": "Another process of this run is gone, so that the step could not be finished. Start the same command "
    "again: it goes on from the newest checkpoint.",
    "E1801": "Several processes were started for a runtime that has one. Under torchrun or accelerate, "
    "`run.runtime=auto` takes `ddp`.",
    "E1802": "A GPU was asked for and torch sees none: no driver, a torch without CUDA, or no device visible to this "
    "process.",
    "E1803": "A batch cannot be divided among more processes than it has samples.",
    "E1804": "Another process of this run died or hung, so that a step could not be finished, or it has not come to "
    "where all meet at the start. The message of that "
    "process says why; start the same command again, it goes on from the newest checkpoint.",
    "E1805": "`run.runtime=ddp` and `fsdp` need several processes, and a launcher that tells each its place: torchrun "
    "or accelerate launch. `run.runtime=auto` takes what the launch says.",
    "E1810": "A process that loads data has ended before its time: it was killed (often because the machine ran out "
    "of memory or of shared memory, /dev/shm) or it crashed while decoding. Start the same command again; it goes on "
    "from the newest checkpoint. With data.workers=0 nothing runs beside the training.",
    "E1820": "With data.verify=use and data.on_broken=weight-0 damaged pictures keep their places and count nothing. "
    "More of them than data.max_skipped allows, and more than 20, end the run. Each is named in run.log. Mend or "
    "remove them, or raise data.max_skipped.",
    "E1830": "`optim.in_backward` moves each weight as soon as its gradient is there, and several processes sum their "
    "gradients first. Start one process, or leave the setting out and share the weights (`run.runtime=fsdp`).",
    "E1831": "A picture turned out to be damaged when it was first decoded, since data.verify=use believed its header "
    "when the data set was indexed. The message names the file. Mend or remove it, set data.verify=start, which "
    "decodes every picture before the run and leaves damaged ones out, or data.on_broken=weight-0, which lets its "
    "place count nothing.",
    "E1840": "data.path or data.cache.path is an address of object storage, such as s3://bucket/shards, and the "
    "package that reads this kind of address is not installed. For s3: pip install 'mezzotint[object-storage]'. Others "
    "are those of fsspec: gcsfs for gs://, adlfs for az://.",
    "E1841": "Something on object storage cannot be read: it is not there, the credentials do not allow it, or the "
    "network failed five times within half a minute. Credentials are found where the library of the storage looks for "
    "them: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, ~/.aws, the role of the machine, fsspec's own settings; "
    "another server is named by AWS_ENDPOINT_URL. They never stand in a recipe or an address, which every run records.",
    "E1842": "This data.format opens files of this machine's disks. On object storage lie tar shards "
    "(data.format=webdataset) and tables with the pictures that they name or hold (data.format=metadata). Pack the "
    "data set as one of them, or mount the storage as a folder.",
    "E1843": "What lies on object storage has changed since the data set was indexed: the bytes of a sample are not "
    "those that the index knows. Nothing is trained on them. Start again, which lists the storage anew; the "
    "fingerprint of the data set will then be another, as after any change of pictures.",
    "E1844": "A cache on object storage could not be written, after five tries within half a minute, or because it is "
    "forbidden. What was made lies in ~/.cache/mezzotint/carried and is carried by the next start.",
    "E1845": "A row of a cache on object storage is not as it was written. The message names the shard: delete it and "
    "its index there, and the index on this machine; the next filling makes its rows again.",
    "E1846": "Each process writes its part of a checkpoint (`run.save.parts`), and the first does not see what another "
    "has written: the run folder is on a disk of one machine alone. Put it on storage that all machines see, or let "
    "the first write everything: `run.save.parts=false`.",
    "E1860": "`mezzotint bench tiny_cpu --against=stock` measures the loop of diffusers' train_text_to_image.py beside "
    "a recipe, and the recipe asks for what that script does not do.",
    "E1861": "`mezzotint bench --gpu` looks at a GPU, and torch sees none. `--dry-run` tries all of it on a CPU, at "
    "a sixteenth of the width.",
    "E1880": "Under `run.runtime=fsdp` the processes of a run are divided into groups of `run.shard.group`, each of "
    "which holds the model once. The number has to divide the number of processes; leave it out to share among all.",
    "E1881": "`run.whole_epochs` ends a run with the last whole epoch within `run.steps`, and there is room for none.",
    "E1900": "A signal stopped the run after it had saved. The line that was printed goes on from there.",
    "E1940": "The page of `mezzotint board` is made of Starlette, uvicorn and Jinja, which come with the extra "
    "`board`: `pip install 'mezzotint[board]'`. No other verb needs them.",
    "E1941": "`mezzotint board --host=ADDRESS` lets other machines reach the page, which shows files and starts runs. "
    "It then needs a password of at least eight signs: `--password-file=FILE`, or typed on a terminal. What goes over "
    "the network is not encrypted: an SSH tunnel to 127.0.0.1 is, and needs no password.",
    "E1942": "The page answers to names of this machine alone, and to requests of its own pages: a name that leads "
    "here from elsewhere, or another site's page, could otherwise act in your name. Behind a name of your own say "
    "`--allow-host=NAME`.",
    "E1943": "A folder that the page should look into is not there; without one it looks into the current folder. Or "
    "`mezzotint report` was given a folder that has runs below it and is none itself: name one of them.",
    "E1944": "The page cannot listen there: the port is taken, or the address is not this machine's. Without `--port` "
    "a free port is taken.",
    "E1945": "The page was opened with `--read-only`, so that nothing is started, stopped or written from it. The "
    "command beside each action does the same in a terminal.",
    "E1946": "The run cannot do that in its present state: previews, a save or a stop are possible while it trains, "
    "resuming when it was stopped or killed. Its page shows its state.",
    "E1947": "A process that the page has started ended at once; the message has the end of its output. The same "
    "command in a terminal prints all of it.",
    "E1948": "The page shows files below the folders it was given, and these data lie elsewhere. `mezzotint board "
    "--data` shows data of its runs wherever `data.path` says.",
    "E1949": "A recipe of the page is saved as a new .yaml file below its first folder; what lies there already stays. "
    "A recipe that was imported from another trainer's command is checked and started once it is saved. A run that is "
    "started from the page writes below the page's folders: `run.folder`, `run.export.folder`, "
    "`run.export.single_file_folder` and `run.profile.folder` cannot lead elsewhere. Start such a run in a terminal.",
    "E1970": "Near duplicates are found by perceptual hashes of the package ImageHash, which comes with the extras "
    "`doctor` and `board`: `pip install 'mezzotint[doctor]'`. Everything else of the doctor goes without.",
}
