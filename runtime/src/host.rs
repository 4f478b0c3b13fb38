//! The host of this process.

use std::net::IpAddr;
use std::sync::OnceLock;

/// The host's name (in a pod, the pod's name); `localhost` without one.
pub fn name() -> &'static str {
    static NAME: OnceLock<String> = OnceLock::new();
    NAME.get_or_init(|| {
        std::env::var("HOSTNAME")
            .ok()
            .or_else(|| std::fs::read_to_string("/proc/sys/kernel/hostname").ok())
            .map(|name| name.trim().to_owned())
            .filter(|name| !name.is_empty())
            .unwrap_or_else(|| "localhost".to_owned())
    })
}

/// The host's name as a DNS-1123 subdomain of at most 200 bytes, because a personal machine may have any name.
pub fn dns_name() -> String {
    dns_name_of(name())
}

fn dns_name_of(name: &str) -> String {
    let plain = |character: char| match character.to_ascii_lowercase() {
        kept @ ('a'..='z' | '0'..='9') => kept,
        _ => '-',
    };
    let name: String = name.chars().take(200).map(plain).collect();
    let trimmed = name.trim_matches('-');
    if trimmed.is_empty() { "localhost".to_owned() } else { trimmed.to_owned() }
}

/// Whether a host in an address is this machine. An IPv6 address may have brackets.
pub fn is_loopback(host: &str) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_host_has_a_name_that_executors_may_have() {
        let long = "x".repeat(300);
        let cases = [
            ("executor-7", "executor-7"),
            ("Annes-MacBook.local", "annes-macbook-local"),
            ("_my_host_", "my-host"),
            ("ö", "localhost"),
            (long.as_str(), &long[..200]),
        ];
        for (name, expected) in cases {
            assert_eq!(dns_name_of(name), expected);
        }
    }
}
