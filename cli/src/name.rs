//! What this program was called as: by its own name, or by one that kubectl calls it by.

use std::path::Path;
use std::sync::LazyLock;

/// The file that kubectl runs for `kubectl ownergraph`.
pub(crate) const PLUGIN: &str = "kubectl-ownergraph";
/// The file that kubectl runs to complete a line of that.
const COMPLETER: &str = "kubectl_complete-ownergraph";

static CALLED: LazyLock<String> = LazyLock::new(|| {
    let path = std::env::args_os().next().unwrap_or_default();
    Path::new(&path).file_stem().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
});

/// Whether kubectl asks how a line continues.
pub(crate) fn completes() -> bool {
    *CALLED == COMPLETER
}

/// Whether kubectl runs this.
pub(crate) fn is_plugin() -> bool {
    *CALLED == PLUGIN || completes()
}

/// How a command that is printed begins.
pub(crate) fn program() -> &'static str {
    if is_plugin() { "kubectl ownergraph" } else { "ownergraph" }
}
