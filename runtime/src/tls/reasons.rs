//! Failed handshakes in words, for the log of a server and for callers.

use std::io;
use std::time::Duration;

use rustls::pki_types::UnixTime;
use rustls::{AlertDescription, CertificateError, Error};

use super::files::date;

/// Why a server refused a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refused {
    pub(super) reason: Reason,
    pub(super) why: String,
}

/// The label of the counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Reason {
    Expired,
    NotYetValid,
    UnknownAuthority,
    BadCertificate,
    /// The caller refused the server's certificate.
    ByCaller,
    Plaintext,
    Incompatible,
    TooSlow,
    /// The peer closed without a message, as TCP probes do.
    Closed,
}

impl Reason {
    pub(super) const ALL: [Reason; 9] = [
        Reason::Expired,
        Reason::NotYetValid,
        Reason::UnknownAuthority,
        Reason::BadCertificate,
        Reason::ByCaller,
        Reason::Plaintext,
        Reason::Incompatible,
        Reason::TooSlow,
        Reason::Closed,
    ];

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Reason::Expired => "expired",
            Reason::NotYetValid => "not_yet_valid",
            Reason::UnknownAuthority => "unknown_authority",
            Reason::BadCertificate => "bad_certificate",
            Reason::ByCaller => "by_caller",
            Reason::Plaintext => "plaintext",
            Reason::Incompatible => "incompatible",
            Reason::TooSlow => "too_slow",
            Reason::Closed => "closed",
        }
    }
}

impl Refused {
    pub(super) fn of_server(error: &io::Error) -> Refused {
        let Some(tls) = tls_error(error) else {
            return Refused { reason: Reason::Closed, why: format!("the caller closed the connection: {error}") };
        };
        let (reason, why) = if let Error::InvalidCertificate(wrong) = tls {
            of_caller(wrong)
        } else if let Error::AlertReceived(alert) = tls {
            (Reason::ByCaller, format!("the caller refuses this server's certificate: {alert:?}"))
        } else if let Error::InvalidMessage(_) = tls {
            (Reason::Plaintext, "the caller does not use TLS".to_owned())
        } else {
            (Reason::Incompatible, tls.to_string())
        };
        Refused { reason, why }
    }

    pub(super) fn too_slow(within: Duration) -> Refused {
        Refused { reason: Reason::TooSlow, why: format!("no handshake within {} s", within.as_secs()) }
    }
}

fn of_caller(wrong: &CertificateError) -> (Reason, String) {
    const WHOSE: &str = "the caller's certificate";
    match validity(wrong) {
        Validity::Expired(on) => (Reason::Expired, format!("{WHOSE} has expired{on}")),
        Validity::NotYet(before) => (Reason::NotYetValid, format!("{WHOSE} is not valid {before}")),
        Validity::Other if is_foreign(wrong) => {
            (Reason::UnknownAuthority, format!("{WHOSE} is signed by none of the authorities in --client-ca"))
        }
        Validity::Other => (Reason::BadCertificate, format!("{WHOSE}: {wrong}")),
    }
}

/// Whether another authority has signed the certificate: one with another name, or a new one with the same name.
fn is_foreign(wrong: &CertificateError) -> bool {
    matches!(wrong, CertificateError::UnknownIssuer | CertificateError::BadSignature)
}

/// An expired certificate, or one that is not valid yet.
enum Validity {
    /// `, on DATE`, or nothing.
    Expired(String),
    /// `before DATE`, or `yet`.
    NotYet(String),
    Other,
}

fn validity(wrong: &CertificateError) -> Validity {
    let at = |time: &UnixTime| date(i64::try_from(time.as_secs()).unwrap_or(i64::MAX));
    if let CertificateError::ExpiredContext { not_after, .. } = wrong {
        Validity::Expired(format!(", on {}", at(not_after)))
    } else if let CertificateError::NotValidYetContext { not_before, .. } = wrong {
        Validity::NotYet(format!("before {}", at(not_before)))
    } else if matches!(wrong, CertificateError::Expired) {
        Validity::Expired(String::new())
    } else if matches!(wrong, CertificateError::NotValidYet) {
        Validity::NotYet("yet".to_owned())
    } else {
        Validity::Other
    }
}

/// Errors of a caller about the connection to `address`.
#[derive(Clone, Debug)]
pub(super) struct Words {
    pub(super) address: String,
    /// The origin of the authorities, such as `--tls-ca FILE`; `None` for the authorities of the machine.
    pub(super) ca: Option<String>,
    /// The flag of the authorities. Empty for a plaintext caller that no such flag makes use TLS.
    pub(super) ca_flag: &'static str,
    /// The file of `--tls-cert`, if set.
    pub(super) certificate: Option<String>,
    /// The name of this program's flag for the server's name.
    pub(super) name_flag: &'static str,
}

impl Words {
    /// The same error, with a sentence for users instead of the library's message.
    pub(super) fn of(&self, error: io::Error) -> io::Error {
        let kind = error.kind();
        match tls_error(&error) {
            Some(tls) => io::Error::new(kind, self.sentence(tls)),
            None => error,
        }
    }

    /// The error of a plaintext caller at a TLS server.
    pub(super) fn speaks_tls(&self) -> io::Error {
        let flag = if self.ca_flag.is_empty() { String::new() } else { format!("{} FILE or ", self.ca_flag) };
        let why = format!("{} uses TLS, but this connection is plaintext: set {flag}an https:// address", self.address);
        io::Error::new(io::ErrorKind::InvalidData, why)
    }

    fn sentence(&self, error: &Error) -> String {
        let address = &self.address;
        if let Error::InvalidCertificate(wrong) = error {
            self.of_server(wrong)
        } else if matches!(
            error,
            Error::NoApplicationProtocol | Error::AlertReceived(AlertDescription::NoApplicationProtocol)
        ) {
            format!("{address} uses TLS, but not HTTP/2: it is not a graph service")
        } else if let Error::AlertReceived(alert) = error {
            self.of_ours(*alert)
        } else if let Error::InvalidMessage(_) = error {
            format!(
                "{address} does not use TLS: remove {} and https:// if it serves plaintext, or configure TLS at the server",
                self.ca_flag
            )
        } else {
            format!("TLS with {address} failed: {error}")
        }
    }

    fn of_server(&self, wrong: &CertificateError) -> String {
        let whose = format!("the certificate of {}", self.address);
        match validity(wrong) {
            Validity::Expired(on) => return format!("{whose} has expired{on}: renew it at the server"),
            Validity::NotYet(before) => {
                return format!("{whose} is not valid {before}: compare the clocks of both machines");
            }
            Validity::Other => {}
        }
        if let CertificateError::NotValidForNameContext { expected, presented } = wrong {
            let names = if presented.is_empty() { "no name".to_owned() } else { presented.join(", ") };
            return format!(
                "{whose} is not for {}, but for {names}: use one of these names as the address, or set {} to one of them",
                expected.to_str(),
                self.name_flag
            );
        }
        let flag = self.ca_flag;
        match &self.ca {
            Some(ca) if is_foreign(wrong) => format!(
                "{whose} is signed by none of the authorities in {ca}: set {flag} to the file with the authority that signed it"
            ),
            None if is_foreign(wrong) => format!(
                "{whose} is signed by no authority of this machine: set {flag} to the file with the authority that signed it"
            ),
            Some(_) | None => format!("{whose} is not usable: {wrong}"),
        }
    }

    /// The server's reason for refusing the certificate of this caller.
    fn of_ours(&self, alert: AlertDescription) -> String {
        let address = &self.address;
        let Some(certificate) = &self.certificate else {
            return format!("{address} ended the TLS connection: {alert:?}");
        };
        let ours = format!("{address} refuses the certificate in --tls-cert {certificate}");
        if alert == AlertDescription::CertificateExpired {
            format!("{ours}: it has expired or is not valid yet; renew it, or compare the clocks")
        } else if matches!(alert, AlertDescription::UnknownCA | AlertDescription::DecryptError) {
            format!("{ours}: none of the authorities in the server's --client-ca has signed it")
        } else {
            format!("{ours}: {alert:?}")
        }
    }
}

fn tls_error(error: &io::Error) -> Option<&Error> {
    error.get_ref()?.downcast_ref()
}
