"""`penstock` in typer: the decorator that makes a verb of a function, the parameters of verbs, and
the root, which imports a verb on first use.

A verb is a function with annotated parameters whose docstring is its help. It returns an `Output`,
and then has `--json`, or prints by itself and returns the exit code. A parameter of a class of
`Options` stands for several of them.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from importlib import import_module
from inspect import Parameter, Signature, signature
from typing import Annotated, Any, Literal, TypeVar, get_type_hints

import typer
from typer.completion import get_completion_inspect_parameters, shell_complete
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command, get_group

from penstock.command.flags import Flag
from penstock.errors import NameInvalid
from penstock.tools import completion
from penstock.tools.connection import Options
from penstock.tools.output import DONE, Output, WrongUse
from penstock.wire.names import is_valid_name

Verb = TypeVar("Verb", bound=Callable[..., int | Output])


def opt(metavar: str = "", about: str = "", *spelled: str, **more: Any) -> Any:
    return typer.Option(*spelled, metavar=metavar or None, help=about or None, **more)


def switch(about: str, *spelled: str) -> Any:
    """Named after its parameter, unless a name is given."""
    return typer.Option(*spelled, help=about)


def arg(metavar: str = "", about: str = "", **more: Any) -> Any:
    return typer.Argument(metavar=metavar or None, help=about or None, **more)


def _name(kind: str) -> Callable[[str], str]:
    """Of a verb's topic or channel. Raises WrongUse; nsqd's refusal is its code alone, as NSQ's."""

    def check(name: str) -> str:
        if not is_valid_name(name):
            raise WrongUse(str(NameInvalid(kind, name)))
        return name

    return check


Topic = Annotated[str, arg("TOPIC", autocompletion=completion.topics, callback=_name("topic"))]
Channel = Annotated[
    str, arg("CHANNEL", autocompletion=completion.channels, callback=_name("channel"))
]
OnlyTopic = Annotated[str, arg("TOPIC", "only this one", autocompletion=completion.topics)]
OnlyChannel = Annotated[str, arg("CHANNEL", "only this one", autocompletion=completion.channels)]
Partition = Annotated[
    int | None, opt("N", "only this partition", autocompletion=completion.partitions)
]
Json = Annotated[bool, switch("print JSON, for programs", "--json")]
Yes = Annotated[bool, switch("do it without asking")]
Several = list[str] | None  # of an argument, or of an option that may be repeated
Limit = Annotated[int, opt("N", "only the first N", min=0)]


def group(about: str, *examples: str) -> typer.Typer:
    return typer.Typer(
        help=about, epilog=_epilog(examples), no_args_is_help=True, rich_markup_mode=None,
        add_completion=False, pretty_exceptions_enable=False,
    )  # fmt: skip


def _epilog(examples: Sequence[str]) -> str:
    lines = ["\b", "examples:", *(f"  penstock {one}" for one in examples)]
    return "\n".join(lines) if examples else ""


def verb(
    app: typer.Typer, *examples: str, name: str = "", about: str = "",
    without: Collection[str] = (), **settings: Any,
) -> Callable[[Verb], Verb]:  # fmt: skip
    """Make the function a verb of `app`, `without` these of its parameters, which are None then.
    Its help ends with the examples, each behind `penstock`; a test tries them."""

    def register(function: Verb) -> Verb:
        app.command(
            name or function.__name__.strip("_").replace("_", "-"), help=about or None,
            epilog=_epilog(examples), context_settings=settings or None,
        )(_with_options(function, without))  # fmt: skip
        return function

    return register


def _with_options(
    function: Callable[..., int | Output], without: Collection[str]
) -> Callable[..., int]:
    """The same function, with a parameter for each option; those of a bundle of options come last
    in the help."""
    hints = get_type_hints(function, include_extras=True)
    own: list[Parameter] = []
    bundles: dict[str, type[Options]] = {}
    for one in signature(function).parameters.values():
        kind = hints[one.name]
        if one.name in without:
            continue
        if isinstance(kind, type) and issubclass(kind, Options):
            bundles[one.name] = kind
        else:
            own.append(one.replace(annotation=kind, kind=Parameter.KEYWORD_ONLY))
    has_json = hints["return"] in (Output, int | Output)
    if has_json:
        own.append(Parameter("as_json", Parameter.KEYWORD_ONLY, default=False, annotation=Json))

    def call(**given: Any) -> int:
        for name, kind in bundles.items():
            given[name] = kind({one.name: given.pop(one.name) for one in kind.parameters()})
        as_json = has_json and given.pop("as_json")
        answer = function(**given, **dict.fromkeys(without))
        return answer if isinstance(answer, int) else answer.print(as_json)

    own += [one for kind in bundles.values() for one in kind.parameters()]
    for one in own:
        if not one.default:
            (info,) = one.annotation.__metadata__
            info.show_default = False  # "nothing" is no news in a help
            if one.default is False and info.default is ...:  # typer would add a --no-
                info.param_decls = (f"--{one.name.replace('_', '-')}",)
    call.__doc__ = function.__doc__
    return _called_with(call, own)


def _called_with(call: Callable[..., int], parameters: Sequence[Parameter]) -> Callable[..., int]:
    call.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    return call


app = group("")  # has the verbs that are no groups


def command_of(name: str, module: str) -> Any:
    """A verb, or a group of verbs, as defined by its module."""
    found = import_module(module).app
    return get_group(app).commands.get(name) or get_group(found)


@verb(app, "completion bash", name="completion")
def print_completion(
    shell: Annotated[
        Literal["bash", "zsh", "fish", "powershell"], arg("SHELL", "bash, zsh, fish or powershell")
    ],
) -> int:
    """Print a completion script.

    bash: put it in ~/.local/share/bash-completion/completions/penstock; zsh: in a directory of
    $fpath, as _penstock."""
    if shell in ("bash", "zsh"):
        print(completion.BASH if shell == "bash" else completion.ZSH, end="")
        return DONE
    return shell_complete(root({}), {}, "penstock", "_PENSTOCK_COMPLETE", f"source_{shell}")


class _Root(TyperGroup):
    modules: Mapping[str, str]

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, command, rest = super().resolve_command(ctx, args)
        if name is None:  # a shell that completes goes on behind a verb that there is not
            return args[0], TyperCommand(args[0]), []
        if name in self.modules:
            command = command_of(name, self.modules[name])
        else:
            command = get_command(_flags_of(import_module(f"penstock.{name}.main").FLAGS))
        command.name = name
        return name, command, rest


def _flags_of(flags: Sequence[Flag]) -> typer.Typer:
    """Completions behind a daemon, which reads its command line itself."""
    parameters = [
        Parameter(one.name.replace("-", "_"), Parameter.KEYWORD_ONLY, default=None, annotation=
                  Annotated[Literal[one.choices] if any(one.choices) else str,
                            typer.Option(f"--{one.name}")])
        for one in flags
    ]  # fmt: skip
    app = group("")
    app.command()(_called_with(lambda **_: DONE, parameters))
    return app


def root(verbs: Mapping[str, tuple[str, str]]) -> _Root:
    """The module of each verb, and its summary."""
    get_completion_inspect_parameters()  # it makes the shells known, whose classes are private
    commands: Any = {
        name: TyperCommand(name, help=about, rich_markup_mode=None)
        for name, (_, about) in verbs.items()
    }
    found = _Root(
        name="penstock", commands=commands,
        help="An operator's command for nsqd and all that belongs to it.",
        epilog="penstock VERB --help says more, with examples; penstock --version",
        rich_markup_mode=None, no_args_is_help=True,
        context_settings={"help_option_names": ["-h", "--help"]},
    )  # fmt: skip
    found.modules = {name: module for name, (module, _) in verbs.items() if module}
    return found


def run(verbs: Mapping[str, tuple[str, str]], arguments: Sequence[str]) -> int:
    """The exit code; below 0 where the command line is wrong, which was reported already."""
    try:
        code = root(verbs).main(list(arguments), "penstock", standalone_mode=False)
    except typer.TyperException as error:
        error.show()  # type: ignore[attr-defined]
        return -1
    return DONE if code is None else int(code)
