//! Writes the kubeconfig by which other programs find the server.

use std::net::SocketAddr;
use std::path::Path;
use std::{fs, io};

use serde_json::json;

/// The name of cluster, context and user in the file.
const NAME: &str = "sandbox";

/// Writes a kubeconfig for a sandbox at an address, and replaces an existing file.
///
/// # Errors
/// The file cannot be written.
pub fn write_kubeconfig(path: &Path, address: SocketAddr) -> io::Result<()> {
    // JSON is YAML, and every reader of kubeconfigs reads YAML.
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{ "name": NAME, "cluster": { "server": format!("http://{address}") } }],
        "users": [{ "name": NAME, "user": {} }],
        "contexts": [{ "name": NAME, "context": { "cluster": NAME, "user": NAME, "namespace": "default" } }],
        "current-context": NAME,
    });
    let mut text = serde_json::to_string_pretty(&config)?;
    text.push('\n');
    fs::write(path, text)
}
