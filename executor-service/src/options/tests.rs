use super::*;
use engine::session::Concurrency;

fn parse(arguments: &[&str]) -> Result<Options, String> {
    Options::try_parse_from(std::iter::once(&"executor-service").chain(arguments)).map_err(|error| error.to_string())
}

#[test]
fn addresses_are_read_in_both_spellings() {
    let options = parse(&["--graph", "127.0.0.1:7450,http://[::1]:7450,localhost:1,dns:///localhost:1"]).unwrap();
    assert_eq!(options.graph.len(), 4);
    options.check().unwrap();
    for bad in [
        "",
        "here",
        "127.0.0.1",
        "127.0.0.1:0",
        "127.0.0.1:x",
        "a:1/path",
        "a b:1",
        "https://a:1/path",
        "u@a:1",
        ":1",
        "a:1,,b:2",
        "dns:///a",
        "dns://a:1",
    ] {
        let error = parse(&["--graph", bad]).unwrap_err();
        assert!(error.contains("--graph"), "{bad}: {error}");
    }
}

#[test]
fn plaintext_beyond_loopback_needs_a_word() {
    for arguments in [
        ["--graph", "127.0.0.1:1,graph:7450"],
        ["--graph", "10.0.0.1:7450"],
        ["--graph", "dns:///graph:7450"],
        ["--admin-listen", "0.0.0.0:1"],
    ] {
        let refused = parse(&arguments).unwrap().check().unwrap_err().to_string();
        assert!(refused.contains(arguments[0]) && refused.contains("--insecure"), "{refused}");
        let mut allowed = arguments.to_vec();
        allowed.push("--insecure");
        parse(&allowed).unwrap().check().unwrap();
    }
}

#[test]
fn bad_values_are_named() {
    for (arguments, part) in [
        (["--concurrency", "0"], "--concurrency"),
        (["--concurrency", "many"], "--concurrency"),
        (["--max-concurrency", "2000"], "--max-concurrency"),
        (["--name", ""], "--name"),
        (["--name", "My_Host"], "--name"),
        (["--admin-listen", "8080"], "--admin-listen"),
        (["--log-format", "yaml"], "text or json"),
    ] {
        let error = parse(&arguments).unwrap_err();
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn an_executor_without_a_name_gets_one() {
    let config = parse(&[]).unwrap().config();
    assert!(config.name.ends_with(&format!("-{}", std::process::id())), "{}", config.name);
    assert_eq!(config.concurrency, Concurrency::Adaptive { max: 64 });
    assert_eq!(parse(&["--max-concurrency", "5"]).unwrap().config().concurrency, Concurrency::Adaptive { max: 5 });
    assert_eq!(parse(&["--concurrency", "7"]).unwrap().config().concurrency, Concurrency::Fixed(7));
}
