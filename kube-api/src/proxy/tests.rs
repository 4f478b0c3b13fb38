use super::*;

fn environment(variables: &[(&str, &str)]) -> Environment {
    Environment::read(|name| Some(variables.iter().find(|(known, _)| *known == name)?.1.to_owned()))
}

/// The proxy for a server, `direct`, or the variable that is not usable.
fn chosen(variables: &[(&str, &str)], server: &'static str) -> String {
    match environment(variables).proxy_for(&Uri::from_static(server)) {
        Ok(Some(proxy)) => proxy.to_string(),
        Ok(None) => "direct".to_owned(),
        Err((variable, error)) => format!("{variable}: {error}"),
    }
}

#[test]
fn the_environment_decides_by_scheme_and_upper_case_names_win() {
    let both = [("HTTPS_PROXY", "http://secure:1"), ("http_proxy", "http://plain:2")];
    for (variables, server, proxy) in [
        (&both[..], "https://k8s.example:6443", "http://secure:1"),
        (&both, "http://k8s.example", "http://plain:2"),
        (&both[..1], "http://k8s.example", "direct"),
        (&both[1..], "https://k8s.example", "direct"),
        (&[("HTTPS_PROXY", "upper"), ("https_proxy", "lower")], "https://k8s.example", "http://upper:80"),
        (&[("HTTPS_PROXY", ""), ("https_proxy", "lower:81")], "https://k8s.example", "http://lower:81"),
        (&[("HTTPS_PROXY", "one"), ("ALL_PROXY", "socks5://all")], "https://k8s.example", "http://one:80"),
        (&[("HTTPS_PROXY", "one"), ("ALL_PROXY", "socks5://all")], "http://k8s.example", "socks5://all:1080"),
        (&[("all_proxy", "socks5h://all:9")], "https://k8s.example", "socks5h://all:9"),
        (&[("HTTPS_PROXY", "https://me:word@tls/path")], "https://k8s.example", "https://tls:443"),
        (&[("HTTPS_PROXY", "http://[fd00::1]")], "https://k8s.example", "http://[fd00::1]:80"),
        (&[], "https://k8s.example", "direct"),
    ] {
        assert_eq!(chosen(variables, server), proxy, "{variables:?} {server}");
    }
    let unusable = chosen(&[("https_proxy", "socks4://me:word@old")], "https://k8s.example");
    assert!(unusable.starts_with("https_proxy: it is not a URL") && !unusable.contains("word"), "{unusable}");
    assert_eq!(chosen(&[("https_proxy", "socks4://old"), ("no_proxy", "*")], "https://k8s.example"), "direct");
}

#[test]
fn loopback_is_never_proxied_and_no_proxy_follows_the_rules_of_go() {
    for (no, server, direct) in [
        ("", "https://localhost:6443", true),
        ("", "https://LOCALHOST", true),
        ("", "https://127.0.0.1:6443", true),
        ("", "https://127.9.9.9", true),
        ("", "https://[::1]:6443", true),
        ("", "https://[::ffff:127.0.0.1]:6443", true),
        ("", "https://localhost.example", false),
        ("", "https://10.0.0.1", false),
        ("*", "https://k8s.example", true),
        ("other, *", "https://10.0.0.1", true),
        ("k8s.example", "https://k8s.example:6443", true),
        ("K8S.Example", "https://k8s.eXAMPLE:6443", true),
        ("example", "https://k8s.example", true),
        ("ample", "https://k8s.example", false),
        ("s.example", "https://k8s.example", false),
        (".example", "https://k8s.example", true),
        ("*.example", "https://k8s.example", true),
        (".k8s.example", "https://k8s.example", false),
        ("*.k8s.example", "https://a.k8s.example", true),
        ("k8s.example:6443", "https://k8s.example:6443", true),
        ("k8s.example:443", "https://k8s.example", true),
        ("k8s.example:80", "http://k8s.example", true),
        ("k8s.example:6443", "https://k8s.example", false),
        ("k8s.example:x", "https://k8s.example", false),
        ("k8s.example:", "https://k8s.example", true),
        (" a.example ,,\tk8s.example ", "https://k8s.example", true),
        ("10.0.0.0/8", "https://10.1.2.3:6443", true),
        ("10.0.0.1/8", "https://10.1.2.3:6443", true),
        ("10.0.0.0/8", "https://11.0.0.1", false),
        ("10.0.0.0/8", "https://k8s.example", false),
        ("fd00::/8", "https://[fd12::1]:6443", true),
        ("10.0.0.1", "https://10.0.0.1:6443", true),
        ("10.0.0.1", "https://10.0.0.11:6443", false),
        // Go compares the text of addresses too.
        ("0.0.1", "https://10.0.0.1", true),
        ("10.0.0.1:6443", "https://10.0.0.1:6443", true),
        ("10.0.0.1:6443", "https://10.0.0.1:443", false),
        ("fd00::1", "https://[fd00::1]:6443", true),
        ("[fd00::1]:6443", "https://[fd00::1]:6443", true),
        ("[fd00::1]:6443", "https://[fd00::1]:443", false),
        ("., *., :, :443", "https://k8s.example", false),
    ] {
        let chosen = chosen(&[("HTTPS_PROXY", "p"), ("HTTP_PROXY", "p"), ("NO_PROXY", no)], server);
        assert_eq!(chosen == "direct", direct, "NO_PROXY={no:?} {server}: {chosen}");
    }
}

#[test]
fn urls_are_read_and_credentials_are_not_shown() {
    let http = Proxy::parse("http://me:pa%40ss@proxy:3128").unwrap();
    assert_eq!(http.basic.as_ref().unwrap(), "Basic bWU6cGFAc3M=");
    let socks = Proxy::parse("socks5://me:pa%40ss@proxy").unwrap();
    assert_eq!(socks.password, Some(("me".to_owned(), "pa@ss".to_owned())));
    for (proxy, shown) in [(http, "http://proxy:3128"), (socks, "socks5://proxy:1080")] {
        let environment =
            environment(&[("HTTPS_PROXY", "http://me:pass@proxy"), ("ALL_PROXY", "http://me:pass@proxy")]);
        assert_eq!((proxy.to_string(), format!("{proxy:?}")), (shown.to_owned(), format!("Proxy({shown:?})")));
        let debug = format!("{environment:?}");
        assert!(!debug.contains("pass"), "{debug}");
    }
    for wrong in ["proxy:3128", "proxy", "socks4://proxy", "ftp://proxy", "http://", "http://me@", "http://a b", ""] {
        assert_eq!(Proxy::parse(wrong).unwrap_err(), NotAProxy, "{wrong}");
    }
}
