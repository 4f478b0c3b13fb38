//! The flags of `console`.

use super::Connection;
use http::Uri;
use std::path::PathBuf;

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Console {
    /// Port on 127.0.0.1; 0 takes a free one.
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    pub(crate) port: u16,
    /// Do not start a browser. Other users of this machine can read the address on the command line of a browser, and
    /// open it first.
    #[arg(long)]
    pub(crate) no_browser: bool,
    /// Namespace where the page begins, for users with rights in some namespaces only. Default: all namespaces.
    #[arg(short, long)]
    pub(crate) namespace: Option<String>,
    /// Only read: refuse deletions and changes of guards.
    #[arg(long)]
    pub(crate) read_only: bool,
    #[command(flatten)]
    pub(crate) others: Others,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

/// How a console serves other users.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "For other users")]
pub(crate) struct Others {
    /// Serve other users at this address instead, such as 0.0.0.0:8443. The console then has no credentials: each
    /// request carries the token of its user, which goes to the API server and to the graph service. The kubeconfig
    /// must have no user.
    #[arg(
        long,
        value_name = "ADDR",
        requires_all = ["public_url", "server"],
        conflicts_with_all = [
            "port", "no_browser", "namespace", "direct", "from_file", "port_forward_namespace", "insecure", "token", "token_file",
            "tls_cert", "tls_key", "user", "impersonate", "impersonate_groups", "impersonate_uid",
            "client_certificate", "client_key",
        ]
    )]
    pub(crate) listen: Option<String>,
    /// Addresses of the page in browsers, each with scheme and host. Requests for another host, and from pages of
    /// another origin, are refused.
    #[arg(long, value_name = "URL,…", value_delimiter = ',', requires = "listen", value_parser = PublicUrl::read)]
    pub(crate) public_url: Vec<PublicUrl>,
    /// File with the TLS certificate of the page and its chain, as PEM. Reloaded when it changes.
    #[arg(long, value_name = "FILE", requires = "listen", requires = "serve_key")]
    pub(crate) serve_cert: Option<PathBuf>,
    /// File with the private key of --serve-cert, as PEM.
    #[arg(long, value_name = "FILE", requires = "serve_cert")]
    pub(crate) serve_key: Option<PathBuf>,
    /// Allow plaintext at a --listen that is not loopback, for a proxy that ends TLS. Other machines on the way from
    /// the proxy can read the tokens.
    #[arg(long, requires = "listen", conflicts_with = "serve_cert")]
    pub(crate) serve_plaintext: bool,
}

/// Where browsers find a page: a scheme and an authority.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PublicUrl {
    origin: String,
    host: String,
}

impl PublicUrl {
    pub(crate) fn read(text: &str) -> Result<PublicUrl, String> {
        let wrong = || "expected https://HOST or https://HOST:PORT, without a path".to_owned();
        let url: Uri = text.parse().map_err(|_| wrong())?;
        let scheme = url.scheme_str().filter(|scheme| ["http", "https"].contains(scheme)).ok_or_else(wrong)?;
        let authority = url.authority().filter(|authority| !authority.as_str().contains('@')).ok_or_else(wrong)?;
        if url.path() != "/" || url.query().is_some() {
            return Err(wrong());
        }
        // As browsers write it in `Host` and `Origin`.
        let host = authority.as_str().to_ascii_lowercase();
        let default = if scheme == "https" { ":443" } else { ":80" };
        let host = host.strip_suffix(default).unwrap_or(&host).to_owned();
        Ok(PublicUrl { origin: format!("{scheme}://{host}"), host })
    }

    /// The value of `Origin` in requests of the page.
    pub(crate) fn origin(&self) -> &str {
        &self.origin
    }

    /// The value of `Host` in requests to it.
    pub(crate) fn host(&self) -> &str {
        &self.host
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_public_url_is_an_origin() {
        let read = |text| PublicUrl::read(text).map(|url| (url.origin().to_owned(), url.host().to_owned()));
        let is = |origin: &str, host: &str| Ok((origin.to_owned(), host.to_owned()));
        assert_eq!(read("https://console.example"), is("https://console.example", "console.example"));
        assert_eq!(read("https://Console.Example:443/"), is("https://console.example", "console.example"));
        assert_eq!(read("http://[fd00::1]:8080"), is("http://[fd00::1]:8080", "[fd00::1]:8080"));
        for wrong in
            ["console.example", "/", "ftp://a", "https://a/b", "https://a?b", "https://u@a", "https://", "*", ""]
        {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_console_for_others_has_no_credentials_of_its_own() {
        let base = "console --listen 0.0.0.0:8443 --public-url https://a --server graph:7450 --tls-ca ca.crt";
        let parse = |more: &str| {
            let line = format!("ownergraph {base} {more}");
            crate::args::command().try_get_matches_from(line.split_whitespace()).map(drop)
        };
        assert!(parse("").is_ok() && parse("--serve-cert a --serve-key b").is_ok() && parse("--kubeconfig k").is_ok());
        for wrong in [
            "--token t",
            "--token-file f",
            "--tls-cert c --tls-key k",
            "--as root",
            "--as-group g",
            "--as-uid u",
            "--client-certificate c",
            "--client-key k",
            "--user u",
            "--direct",
            "--from-file f",
            "--port 1",
            "--no-browser",
            "--namespace shop",
            "--insecure",
            "--serve-cert a",
            "--serve-plaintext --serve-cert a --serve-key b",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
        let alone = |line: &str| crate::args::command().try_get_matches_from(line.split_whitespace()).is_err();
        assert!(alone("ownergraph console --listen 0.0.0.0:1 --public-url https://a"));
        assert!(alone("ownergraph console --listen 0.0.0.0:1 --server a:1"));
        assert!(alone("ownergraph console --public-url https://a"));
    }
}
