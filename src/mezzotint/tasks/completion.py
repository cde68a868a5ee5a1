"""`mezzotint completion bash|zsh|fish`: a script that completes commands, options, their values, recipes and settings.

The script holds all words, so that nothing is started while somebody types; print it again after an update.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import get_args

from mezzotint.errors import did_you_mean
from mezzotint.settings.reading.paths import by_path
from mezzotint.settings.reading.read import shipped_recipes
from mezzotint.tasks.ls import list_kinds
from mezzotint.tasks.queue.queue import ACTIONS
from mezzotint.tasks.reading import command_line
from mezzotint.tasks.reading.commands import COMMANDS, Command


def run(arguments: Sequence[str]) -> int:
    """Prints the script of a shell. Raises RecipeError E1012 for an unknown one."""
    line = command_line.parse(arguments, "completion")
    shell = line.plain[0]
    if shell not in _SCRIPTS:
        hint = did_you_mean(shell, _SCRIPTS, f"it has {', '.join(_SCRIPTS)}")
        raise line.usage_error(f"there is no script for {shell!r}; {hint}")
    print(_SCRIPTS[shell](), end="")
    return 0


def _first_words(command: Command) -> list[str]:
    """Words that may follow a command's name, besides files."""
    match command.name:
        case "queue":
            return list(ACTIONS)
        case "completion":
            return list(_SCRIPTS)
        case "ls":
            return list(list_kinds())
        case "explain":
            return list(by_path())
        case _:
            return list(shipped_recipes()) if _takes_settings(command) or command.name == "cp" else []


def _takes_settings(command: Command) -> bool:
    return "key=value" in command.form


def _options(command: Command) -> list[str]:
    return [f"{option.name}=" if option.takes_value else option.name for option in command.all_options()]


def _values() -> dict[str, list[str]]:
    """The values of options and settings that are one of a few words, by `--option` or setting."""
    values = {
        path: ["true", "false"] if setting.shape.base is bool else list(map(str, get_args(setting.shape.base)))
        for path, setting in by_path().items()
        if setting.shape.choices or setting.shape.base is bool
    }
    return values | {
        option.name: list(option.choices) for command in COMMANDS for option in command.options if option.choices
    }


def _words() -> dict[str, str]:
    """The lists that every script has, each as one text: commands, settings, and the sections that they begin with."""
    sections = dict.fromkeys(f"{path.partition('.')[0]}." for path in by_path() if "." in path)
    return {
        "@COMMANDS@": " ".join(command.name for command in COMMANDS),
        "@SETTINGS@": " ".join(f"{path}=" for path in by_path() if "." in path),
        "@SECTIONS@": " ".join(sections),
        "@TAKING@": "|".join(command.name for command in COMMANDS if _takes_settings(command)),
    }


def _fill(template: str) -> str:
    """A script of bash or zsh: its template with the lists, and the rows of its `case`s."""
    rows = {
        "@FIRST@": {command.name: _first_words(command) for command in COMMANDS},
        "@OPTIONS@": {command.name: _options(command) for command in COMMANDS},
        "@VALUES@": _values(),
    }
    for mark, words in _words().items():
        template = template.replace(mark, words)
    for mark, row in rows.items():
        cases = (f"    {key}) list='{' '.join(words)}' ;;" for key, words in row.items() if words)
        template = template.replace(mark, "\n".join(cases))
    return template


_BASH = """\
# completion of mezzotint in bash: source <(mezzotint completion bash)
_mezzotint_first() {
  case $1 in
@FIRST@
  esac
}
_mezzotint_options() {
  case $1 in
@OPTIONS@
  esac
}
_mezzotint_values() {
  case $1 in
@VALUES@
  esac
}
_mezzotint() {
  local line=${COMP_LINE:0:COMP_POINT} list= files= word reply
  local cur=${line##*[[:space:]]} command=${COMP_WORDS[1]} before
  before=${line%"$cur"}
  local -a typed=($before)
  local previous=${typed[${#typed[@]}-1]}
  if ((${#typed[@]} < 2)); then
    list='@COMMANDS@'
  elif [[ $cur == *=* ]]; then
    _mezzotint_values "${cur%%=*}"
    word=${cur%%=*}= cur=${cur#*=}
    [[ $list ]] || files=yes
  elif [[ $cur == -* ]]; then
    _mezzotint_options "$command"
  else
    [[ $previous == --* ]] && _mezzotint_values "$previous"
    if [[ ! $list ]]; then
      files=yes
      ((${#typed[@]} == 2)) && _mezzotint_first "$command"
      [[ $command:${#typed[@]} == queue:3 && $previous == add ]] && _mezzotint_first train
      case $command in
        @TAKING@) [[ $cur == *.* ]] && list+=' @SETTINGS@' || list+=' @SECTIONS@' ;;
      esac
    fi
  fi
  [[ $word && $COMP_WORDBREAKS != *=* ]] || word=
  COMPREPLY=()
  while IFS= read -r reply; do
    [[ $reply == *[=./] && ! -f $reply ]] && compopt -o nospace 2> /dev/null
    COMPREPLY+=("$word$reply")
  done < <(
    compgen -W "$list" -- "$cur"
    [[ $files ]] && compgen -f -- "$cur" | while IFS= read -r reply; do
      [[ -d $reply ]] && reply+=/
      printf '%q\n' "$reply"
    done
  )
}
complete -F _mezzotint mezzotint
"""

_ZSH = """\
#compdef mezzotint
# completion of mezzotint in zsh: source <(mezzotint completion zsh), after compinit
_mezzotint_first() {
  case $1 in
@FIRST@
  esac
}
_mezzotint_options() {
  case $1 in
@OPTIONS@
  esac
}
_mezzotint_values() {
  case $1 in
@VALUES@
  esac
}
_mezzotint() {
  local list= cur=$PREFIX command=$words[2] previous=$words[CURRENT-1]
  if ((CURRENT == 2)); then
    list='@COMMANDS@'
  elif [[ $cur == *=* ]]; then
    _mezzotint_values "${cur%%=*}"
    compset -P '*='
    [[ -n $list ]] || _files
  elif [[ $cur == -* ]]; then
    _mezzotint_options $command
  else
    [[ $previous == --* ]] && _mezzotint_values $previous
    if [[ -z $list ]]; then
      ((CURRENT == 3)) && _mezzotint_first $command
      [[ $command:$CURRENT:$previous == queue:4:add ]] && _mezzotint_first train
      case $command in
        @TAKING@) [[ $cur == *.* ]] && list+=' @SETTINGS@' || list+=' @SECTIONS@' ;;
      esac
      _files
    fi
  fi
  local -a all=(${=list})
  compadd -S '' -- ${(M)all:#*[=.]}
  compadd -- ${all:#*[=.]}
}
(( $+functions[compdef] )) && compdef _mezzotint mezzotint
[[ $funcstack[1] == _mezzotint ]] && _mezzotint "$@"
:
"""


def _write_fish() -> str:
    """fish has no `case`s for this: one `complete` for each list."""
    lines = [
        "# completion of mezzotint in fish: mezzotint completion fish | source",
        "function __mezzotint_at; set -l typed (commandline -opc); test (count $typed) -eq $argv[1]; end",
        "function __mezzotint_in; set -l typed (commandline -opc); contains -- $typed[2] $argv; end",
        "function __mezzotint_dotted; string match -q '*.*' -- (commandline -ct); end",
    ]
    for command in COMMANDS:
        about, inside = _quote(command.about), f"-n '__mezzotint_in {command.name}'"
        lines.append(f"complete -c mezzotint -n '__mezzotint_at 1' -f -a {command.name} -d {about}")
        for option in command.all_options():
            takes = (
                ""
                if not option.takes_value
                else f" -x -a {_quote(' '.join(option.choices))}"
                if option.choices
                else " -r"
            )
            lines.append(f"complete -c mezzotint {inside} -l {option.name[2:]}{takes} -d {_quote(option.help)}")
        if words := _first_words(command):
            second = f"-n '__mezzotint_in {command.name}; and __mezzotint_at 2'"
            lines.append(f"complete -c mezzotint {second} -a {_quote(' '.join(words))}")
    lists = _words()
    taking = f"__mezzotint_in {lists['@TAKING@'].replace('|', ' ')}"
    values = " ".join(f"{path}={value}" for path, each in _values().items() if path[0] != "-" for value in each)
    lines += [
        f"complete -c mezzotint -n '{taking}; and not __mezzotint_dotted' -a {_quote(lists['@SECTIONS@'])}",
        f"complete -c mezzotint -n '{taking}; and __mezzotint_dotted' -a {_quote(lists['@SETTINGS@'] + ' ' + values)}",
    ]
    return "\n".join(lines) + "\n"


def _quote(text: str) -> str:
    """A word for fish: between single quotes only a backslash and a single quote are escaped."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


_SCRIPTS: dict[str, Callable[[], str]] = {
    "bash": lambda: _fill(_BASH),
    "zsh": lambda: _fill(_ZSH),
    "fish": _write_fish,
}
