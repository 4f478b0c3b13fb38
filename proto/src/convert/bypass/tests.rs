use super::*;

fn good() -> BypassGateRequest {
    BypassGateRequest {
        name: "gates/production".to_owned(),
        ttl: Some(prost_types::Duration { seconds: 60, nanos: 0 }),
        reason: "the engine hangs".to_owned(),
    }
}

#[test]
fn what_is_wrong_with_a_bypass_is_said() {
    let order = BypassOrder::try_from(good()).unwrap();
    assert_eq!((&*order.gate, order.lifetime), ("production", Duration::from_secs(60)));
    let ttl = |seconds, nanos| Some(prost_types::Duration { seconds, nanos });
    let named = |name: &str| BypassGateRequest { name: name.to_owned(), ..good() };
    for (said, request) in [
        ("field name does not have the form gates/{gate}", named("production")),
        ("field name does not have the form gates/{gate}", named("pauses/production")),
        ("field name does not have the form gates/{gate}", named("gates/")),
        ("field name does not have the form gates/{gate}", named("gates/../pauses/p")),
        ("field name does not have the form gates/{gate}", named(&format!("gates/{}", "x".repeat(254)))),
        ("field ttl is missing", BypassGateRequest { ttl: None, ..good() }),
        ("field ttl is zero", BypassGateRequest { ttl: ttl(0, 0), ..good() }),
        ("field ttl is negative", BypassGateRequest { ttl: ttl(-1, 0), ..good() }),
        ("field ttl is at most 10 s", BypassGateRequest { ttl: ttl(10, 0), ..good() }),
        ("field ttl is longer than 86400 s", BypassGateRequest { ttl: ttl(86_401, 0), ..good() }),
        ("field ttl is not a whole number of seconds", BypassGateRequest { ttl: ttl(60, 1), ..good() }),
        ("field reason is empty", BypassGateRequest { reason: " ".to_owned(), ..good() }),
        ("field reason has more than 1024 bytes", BypassGateRequest { reason: "x".repeat(1025), ..good() }),
    ] {
        let error = BypassOrder::try_from(request).unwrap_err().to_string();
        assert!(error.starts_with(said), "{said}: {error}");
    }
}
