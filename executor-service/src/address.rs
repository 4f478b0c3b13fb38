//! Parses addresses of graph services.

use http::Uri;
use proto::convert::ENDPOINT_MAX_BYTES;

/// Whether an address `HOST:PORT` is on this machine.
pub fn is_loopback(address: &str) -> bool {
    let Ok(uri) = uri(address) else { return false };
    runtime::host::is_loopback(uri.host().unwrap_or_default())
}

/// Parses `HOST:PORT`, with or without `http://` or `https://`, as a URI.
pub(crate) fn uri(address: &str) -> Result<Uri, String> {
    const WANTED: &str = "expected HOST:PORT, such as 127.0.0.1:7450";
    if address.len() > ENDPOINT_MAX_BYTES {
        return Err(format!("an address of {} bytes; {WANTED}", address.len()));
    }
    let text = address.strip_prefix("http://").or_else(|| address.strip_prefix("https://")).unwrap_or(address);
    let text = text.trim_end_matches('/');
    let uri: Uri = format!("http://{text}/").parse().map_err(|_| WANTED.to_owned())?;
    let whole = uri.path() == "/" && uri.query().is_none() && uri.host().is_some_and(|host| !host.is_empty());
    let plain = uri.authority().is_some_and(|authority| !authority.as_str().contains('@'));
    if whole && plain && uri.port_u16().is_some_and(|port| port != 0) { Ok(uri) } else { Err(WANTED.to_owned()) }
}
