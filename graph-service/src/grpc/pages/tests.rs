//! The answers that are kept between pages.

use super::*;
use crate::grpc::small_world::reason;
use proto::r#type::v1beta1::GroupResource;

fn paging(user: &str, token: &str) -> Paging {
    let question = Question { digest: 1, whose: Some(Whose::named(user)) };
    Paging { question, size: 2, token: (!token.is_empty()).then(|| parse(token).unwrap()) }
}

/// A list of this many items of this many bytes.
fn listed(count: usize, bytes: usize) -> Listed<GroupResource, ()> {
    let item = |number| GroupResource { group: "g".repeat(bytes), resource: format!("{number:05}") };
    Listed::new((0..count).map(item).collect(), ())
}

async fn page(
    answers: &Answers,
    user: &str,
    token: &str,
    source: Listed<GroupResource, ()>,
) -> Result<(Vec<String>, String), Status> {
    let ((items, ()), next) = answers.page(paging(user, token), async || Ok(source)).await?;
    Ok((items.into_iter().map(|item| item.resource).collect(), next))
}

async fn next(answers: &Answers, user: &str, token: &str) -> Result<(Vec<String>, String), Status> {
    page(answers, user, token, listed(0, 0)).await
}

fn why<T: std::fmt::Debug>(answer: Result<T, Status>) -> String {
    reason(&answer.unwrap_err())
}

#[tokio::test(start_paused = true)]
async fn a_page_whose_answer_was_lost_is_given_again_and_no_other() {
    let answers = Answers::default();
    let (first, one) = page(&answers, "a", "", listed(5, 1)).await.unwrap();
    let (second, two) = next(&answers, "a", &one).await.unwrap();
    assert_eq!((first.join(" "), second.join(" ")), ("00000 00001".to_owned(), "00002 00003".to_owned()));
    assert_eq!(next(&answers, "a", &one).await.unwrap(), (second, two.clone()));
    let (third, none) = next(&answers, "a", &two).await.unwrap();
    assert_eq!((third.join(" "), none.as_str()), ("00004".to_owned(), ""));
    assert_eq!(next(&answers, "a", &two).await.unwrap().0, third);
    assert_eq!(why(next(&answers, "a", &one).await), "PAGE_TOKEN_EXPIRED", "two pages ago");
    let other = format!("{}{:08x}", &two[..34], 7);
    assert_eq!(why(next(&answers, "a", &other).await), "PAGE_TOKEN_EXPIRED", "made up");
    assert_eq!(why(next(&answers, "b", &two).await), "PAGE_TOKEN_EXPIRED", "of another caller");
    tokio::time::advance(AGE_MAX).await;
    assert_eq!(why(next(&answers, "a", &two).await), "PAGE_TOKEN_EXPIRED", "too old");
}

#[tokio::test(start_paused = true)]
async fn a_caller_who_asks_for_many_first_pages_takes_none_from_others() {
    let answers = Answers::default();
    let (_, quiet) = page(&answers, "quiet", "", listed(5, 1)).await.unwrap();
    let mut tokens = Vec::new();
    for _ in 0..CALLER_ANSWERS_MAX + 3 {
        tokens.push(page(&answers, "busy", "", listed(5, 1)).await.unwrap().1);
    }
    assert!(next(&answers, "quiet", &quiet).await.is_ok());
    for (at, token) in tokens.iter().enumerate() {
        assert_eq!(next(&answers, "busy", token).await.is_ok(), at >= 3, "{at}");
    }
}

#[tokio::test(start_paused = true)]
async fn answers_are_bounded_in_bytes_and_who_has_most_makes_room() {
    let answers = Answers::default();
    let part = CALLER_BYTES_MAX / 2 - 4096;
    let (_, small) = page(&answers, "small", "", listed(5, 1)).await.unwrap();
    let mut tokens = Vec::new();
    for user in ["a", "a", "b", "b", "b"] {
        tokens.push((user, page(&answers, user, "", listed(64, part / 64)).await.unwrap().1));
    }
    let mut kept = Vec::new();
    for (user, token) in &tokens {
        kept.push(next(&answers, user, token).await.is_ok());
    }
    assert_eq!(kept, [true, true, false, true, true]);
    tokens.push(("c", page(&answers, "c", "", listed(64, part / 64)).await.unwrap().1));
    let total: usize = answers.kept.lock().unwrap().iter().map(|kept| kept.bytes).sum();
    assert!(total <= ALL_BYTES_MAX, "{total}");
    assert!(next(&answers, "small", &small).await.is_ok() && next(&answers, "c", &tokens[5].1).await.is_ok());
    let whole = page(&answers, "d", "", listed(65, CALLER_BYTES_MAX / 62)).await;
    assert_eq!(why(whole), "LIMIT_EXCEEDED");
}
