//! Binds addresses.

use std::io;

use tokio::net::TcpListener;

/// An address that cannot be bound: its flag, and the reason.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {flag} {address}: {reason}")]
pub struct ListenError {
    flag: &'static str,
    address: String,
    reason: String,
}

/// Listens on `address` (`HOST:PORT`; port 0 takes a free one). `flag` is its flag, for errors.
pub async fn bind(flag: &'static str, address: &str) -> Result<TcpListener, ListenError> {
    TcpListener::bind(address).await.map_err(|error| ListenError {
        flag,
        address: address.to_owned(),
        reason: reason(&error),
    })
}

fn reason(error: &io::Error) -> String {
    let kind = error.kind();
    if kind == io::ErrorKind::AddrInUse {
        "the port is in use by another process; use another one, or :0 for any free one".to_owned()
    } else if kind == io::ErrorKind::AddrNotAvailable {
        "this machine does not have the address; use one of its own, such as 127.0.0.1 or 0.0.0.0".to_owned()
    } else if kind == io::ErrorKind::PermissionDenied {
        "this user may not use the port; use a port above 1023".to_owned()
    } else if kind == io::ErrorKind::InvalidInput {
        "this is not an address; write HOST:PORT, such as 127.0.0.1:8080".to_owned()
    } else {
        format!("{error}; write HOST:PORT, such as 127.0.0.1:8080")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_error_names_flag_address_and_cause() {
        let taken = bind("--listen", "127.0.0.1:0").await.unwrap();
        let address = taken.local_addr().unwrap().to_string();
        let error = bind("--admin-listen", &address).await.unwrap_err().to_string();
        assert!(
            error.starts_with(&format!("cannot listen on --admin-listen {address}: the port is in use")),
            "{error}"
        );
        for (address, part) in [
            ("8080", "write HOST:PORT"),
            ("127.0.0.1:port", "write HOST:PORT"),
            ("192.0.2.1:0", "does not have the address"),
        ] {
            let error = bind("--listen", address).await.unwrap_err().to_string();
            assert!(error.contains(address) && error.contains(part), "{error}");
        }
    }
}
