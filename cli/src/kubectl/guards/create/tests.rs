use super::*;

#[test]
fn a_protection_is_written_with_what_was_said() {
    let target = json!({ "namespaces": ["shop"] });
    let presets = [Preset::Helm, Preset::ArgoCD, Preset::Helm];
    let specs =
        json!([protection("keep", None, vec![target], &[]), protection("marks", Some(3600), Vec::new(), &presets),]);
    insta::assert_snapshot!(crate::kubectl::document::json(&specs).unwrap());
    assert_eq!(marked(&presets[..2]), "objects with the marks of Helm, ArgoCD");
}

#[test]
fn what_was_created_is_told_with_its_end() {
    let id = |kind, name: &str| GuardId { kind, name: name.into() };
    let kept = text(&id(GuardKind::Protection, "keep"), &spec("one\ntwo", Some(7200), Vec::new()), "pods in shop");
    let limited = text(&id(GuardKind::Budget, "few"), &spec("calm", None, Vec::new()), "everything");
    insta::assert_snapshot!(format!("{kept}\n{limited}"));
}

#[test]
fn times_are_whole_seconds_within_their_bounds() {
    let second = Duration::from_secs(1);
    assert_eq!(seconds("--for", Some(second), Duration::MAX).unwrap(), Some(1));
    assert_eq!(seconds("--for", None, Duration::MAX).unwrap(), None);
    for (wrong, most) in [
        (Duration::from_millis(1500), Duration::MAX),
        (Duration::from_millis(500), LIFETIME_MAX),
        (LIFETIME_MAX + second, LIFETIME_MAX),
    ] {
        let why = seconds("--per", Some(wrong), most).unwrap_err().to_string();
        assert!(why.starts_with("--per must be a whole number of seconds"), "{why}");
    }
}
