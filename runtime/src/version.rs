//! The version of the programs, and the commit that they were built from.

/// The version of all programs.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The commit of a release, from the environment of the build (`deploy/release.sh`). Other builds do not know it: they
/// would compile again after each commit.
pub const COMMIT: &str = match option_env!("OWNERGRAPH_COMMIT") {
    Some(commit) => commit,
    None => "unknown",
};

/// The name of a program in audit logs and in the metrics of the API server.
pub fn user_agent(program: &str) -> String {
    format!("{program}/{VERSION} ({COMMIT})")
}
