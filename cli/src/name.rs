//! The name that this program was called by: its own name, or one that kubectl uses. Printed commands begin with it,
//! and with the flags of this call that say how to reach the cluster and the graph service.

use clap::parser::ValueSource;
use clap::{ArgMatches, Command};
use std::path::Path;
use std::sync::{LazyLock, OnceLock};

/// The file that kubectl runs for `kubectl ownergraph`.
pub(crate) const PLUGIN: &str = "kubectl-ownergraph";
/// The file that kubectl runs to complete a command line of the plug-in.
const COMPLETER: &str = "kubectl_complete-ownergraph";

static CALLED: LazyLock<String> = LazyLock::new(|| {
    let path = std::env::args_os().next().unwrap_or_default();
    Path::new(&path).file_stem().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
});

/// Whether kubectl requests completions of a line.
pub(crate) fn completes() -> bool {
    *CALLED == COMPLETER
}

/// Whether kubectl runs this program as a plug-in.
pub(crate) fn is_plugin() -> bool {
    *CALLED == PLUGIN || completes()
}

/// How the program is called.
pub(crate) fn program() -> &'static str {
    if is_plugin() { "kubectl ownergraph" } else { "ownergraph" }
}

/// The flags of this call. Each has a space before it.
static GIVEN: OnceLock<Given> = OnceLock::new();

#[derive(Clone, Debug, Default)]
struct Given {
    /// Those of the connection.
    connection: String,
    /// Those of the connection that kubectl has too.
    kubectl: String,
    namespace: String,
}

/// Flags of the connection that kubectl has too, by their ids.
const OF_KUBECTL: [&str; 13] = [
    "kubeconfig",
    "context",
    "cluster",
    "user",
    "impersonate",
    "impersonate_groups",
    "impersonate_uid",
    "tls_server_name",
    "certificate_authority",
    "client_certificate",
    "client_key",
    "insecure_skip_tls_verify",
    "request_timeout",
];

/// Keeps the flags of this call that `connection` has, for printed commands.
pub(crate) fn remember(found: &ArgMatches, connection: &Command) {
    let mut innermost = found;
    while let Some((_, below)) = innermost.subcommand() {
        innermost = below;
    }
    let namespace = Command::new("namespace").arg(clap::Arg::new("namespace").long("namespace").short('n'));
    let of_kubectl = connection.get_arguments().filter(|flag| OF_KUBECTL.contains(&flag.get_id().as_str()));
    let _set_before = GIVEN.set(Given {
        connection: given(innermost, connection),
        kubectl: given(innermost, &Command::new("kubectl").args(of_kubectl)),
        namespace: given(innermost, &namespace),
    });
}

/// The flags of a command line, as a shell reads them. Variables stay in effect without being repeated, and secrets are
/// left out.
fn given(found: &ArgMatches, flags: &Command) -> String {
    let on_line = |id: &str| {
        found.try_contains_id(id).unwrap_or(false) && found.value_source(id) == Some(ValueSource::CommandLine)
    };
    let mut text = String::new();
    for flag in flags.get_arguments().filter(|flag| !UNREPEATED.contains(&flag.get_id().as_str())) {
        let id = flag.get_id().as_str();
        let name = match (flag.get_short(), flag.get_long()) {
            (Some(short), _) => format!("-{short}"),
            (None, Some(long)) => format!("--{long}"),
            (None, None) => continue,
        };
        for value in found.try_get_raw(id).ok().flatten().filter(|_| on_line(id)).into_iter().flatten() {
            text.push_str(&format!(" {name}"));
            if flag.get_action().takes_values() {
                text.push_str(&format!(" {}", quoted(&value.to_string_lossy())));
            }
        }
    }
    text
}

/// Flags of the connection that a printed command does not repeat: secrets, and what does not lead anywhere.
const UNREPEATED: [&str; 3] = ["token", "verbosity", "direct"];

/// The beginning of a printed command that reaches the same cluster and the same graph service.
pub(crate) fn command() -> String {
    let Given { connection, .. } = GIVEN.get().cloned().unwrap_or_default();
    format!("{}{connection}", program())
}

/// The same, in the namespace that the flags name.
pub(crate) fn command_here() -> String {
    let Given { connection, namespace, .. } = GIVEN.get().cloned().unwrap_or_default();
    format!("{}{connection}{namespace}", program())
}

/// The beginning of a printed command of kubectl that reaches the same API server.
pub(crate) fn kubectl() -> String {
    format!("kubectl{}", GIVEN.get().cloned().unwrap_or_default().kubectl)
}

/// Quotes a text as one word of a shell.
pub(crate) fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,@+".contains(c);
    let is_plain = !text.is_empty() && text.chars().all(plain);
    if is_plain { text.to_owned() } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Arg, ArgAction};

    #[test]
    fn printed_commands_repeat_the_flags_of_the_line() {
        let flags = || {
            let value = |name: &'static str| Arg::new(name).long(name);
            Command::new("p")
                .arg(value("context").default_value("unsaid"))
                .arg(value("server").action(ArgAction::Append).value_delimiter(','))
                .arg(value("namespace").short('n'))
                .arg(value("insecure").action(ArgAction::SetTrue))
                .arg(value("token"))
        };
        for (line, expected) in [
            (&["p"][..], ""),
            (&["p", "--token", "secret", "--insecure"], " --insecure"),
            (&["p", "--namespace=shop", "--server", "a:1,b:2"], " --server a:1 --server b:2 -n shop"),
            (&["p", "--context", "it's mine"], r" --context 'it'\''s mine'"),
        ] {
            let found = flags().try_get_matches_from(line).unwrap();
            assert_eq!(given(&found, &flags()), expected, "{line:?}");
        }
        assert_eq!([quoted(""), quoted("a b"), quoted("a/b.yaml")], ["''", "'a b'", "a/b.yaml"]);
    }
}
