//! The name that this program was called by: its own name, or one that kubectl uses.

use std::path::Path;
use std::sync::LazyLock;

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

/// The beginning of printed commands.
pub(crate) fn program() -> &'static str {
    if is_plugin() { "kubectl ownergraph" } else { "ownergraph" }
}
