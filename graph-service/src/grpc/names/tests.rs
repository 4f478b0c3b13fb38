//! Walks through lists that change meanwhile.

use super::*;
use crate::grpc::small_world::reason;
use proto::admin::v1beta1::Pause;

fn pause(number: usize) -> Pause {
    Pause { name: format!("p{number:05}"), ..Pause::default() }
}

fn page(items: Vec<Pause>, size: i32, token: &str) -> (Vec<Pause>, String) {
    Cursor::of("pauses", size, token).unwrap().page(items, |pause| pause.name.clone())
}

#[test]
fn what_is_there_all_the_while_comes_once_and_in_order() {
    let mut there: Vec<Pause> = (0..250).rev().map(pause).collect();
    let (mut seen, mut token) = page(there.clone(), 0, "");
    assert_eq!(seen.len(), 100);
    there.retain(|pause| pause.name != "p00099");
    while !token.is_empty() {
        let (more, next) = page(there.clone(), 0, &token);
        seen.extend(more);
        token = next;
    }
    assert_eq!(seen, (0..250).map(pause).collect::<Vec<_>>());
    assert_eq!(page((0..1200).map(pause).collect(), 5000, "").0.len(), 1000);
}

#[test]
fn a_page_ends_at_a_mebibyte() {
    let large = |number: usize| Pause { reason: "x".repeat(100_000), ..pause(number) };
    let (items, next) = page((0..50).map(large).collect(), 50, "");
    assert!(items.iter().map(Message::encoded_len).sum::<usize>() <= 1024 * 1024 && !next.is_empty());
}

#[test]
fn a_token_of_another_list_or_of_no_list_is_refused() {
    let (_, token) = page((0..3).map(pause).collect(), 1, "");
    let failed = |list: &'static str, token: &str| reason(&Cursor::of(list, 1, token).unwrap_err());
    assert_eq!(failed("executors", &token), "PAGE_TOKEN_MISMATCH");
    assert_eq!(failed("pauses", &format!("{token}00")), "PAGE_TOKEN_MISMATCH");
    for broken in ["x", "02", "é", &token[..token.len() - 1], &format!("ff{}", &token[2..]), &"0".repeat(5000)] {
        assert_eq!(failed("pauses", broken), "TOKEN_MALFORMED", "{broken}");
    }
    assert_eq!(reason(&Cursor::of("pauses", -1, "").unwrap_err()), "FIELD_INVALID");
}
