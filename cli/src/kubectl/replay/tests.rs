use super::*;
use clap::FromArgMatches as _;

#[test]
fn all_events_have_one_form() {
    let refused = |form: &[&str]| {
        let arguments = ["ownergraph", "replay", "/nonexistent", "--decisions"].iter().chain(form);
        let found = crate::args::command().try_get_matches_from(arguments).unwrap();
        let (_, found) = found.subcommand().unwrap();
        run(&flags::Replay::from_arg_matches(found).unwrap()).unwrap_err().to_string().contains("use ndjson")
    };
    assert!(refused(&["-o", "yaml"]) && refused(&["-o", "json"]) && refused(&["-o", "table"]));
    assert!(!refused(&[]) && !refused(&["-o", "ndjson"]), "only the recording is missing");
}
