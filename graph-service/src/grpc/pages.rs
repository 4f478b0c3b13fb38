//! Answers in pages. The service keeps the rest of an answer for the caller's later pages.
//!
//! ```text
//! page one -> open   there is more: kept under a random number, with the count of its pages
//! open     -> open   the caller asks for the next page, or for the last one again because its answer was lost
//! open     -> gone   five minutes after page one, or when newer answers need its room
//! ```
//!
//! A token is a format byte, the number of the answer and the page, in hex. It is valid only for the same request, and
//! only for the same caller if callers are authenticated.

use super::access::{Visibility, Whose};
use super::status;
use engine::object::Digest;
use prost::Message;
use std::any::Any;
use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;
use tonic::Status;

#[cfg(test)]
mod tests;

const SIZE_DEFAULT: usize = 100;
const SIZE_MAX: usize = 1000;
/// Maximum size of a page. Together with the other fields, an answer stays below a MiB.
pub(super) const BYTES_MAX: usize = 960 * 1024;
/// Bytes of a list entry besides its content: its tag and its length.
pub(super) const ENTRY_BYTES: usize = 6;
/// How long an answer is kept for its later pages.
const AGE_MAX: Duration = Duration::from_secs(300);
/// Maximum number of kept answers of one caller. The oldest answers of the caller are dropped first.
const CALLER_ANSWERS_MAX: usize = 16;
/// Maximum size of all kept answers of one caller. A larger answer is refused.
const CALLER_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Maximum size of all kept answers. The oldest answers of the caller with the most bytes are dropped first.
const ALL_BYTES_MAX: usize = 128 * 1024 * 1024;
/// First byte of a token.
const FORMAT: u8 = 1;

/// A page of a request.
#[derive(Debug)]
pub(super) struct Paging {
    question: Question,
    size: usize,
    token: Option<(u128, u32)>,
}

/// The request and its caller. Another caller cannot use the kept answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Question {
    digest: u64,
    whose: Option<Whose>,
}

impl Question {
    pub(super) fn of(asked: &impl Message, visibility: &Visibility) -> Question {
        Question { digest: Digest::of(asked.encode_to_vec()), whose: visibility.whose() }
    }
}

impl Paging {
    /// Creates the page request. `question` is the request without its page fields.
    pub(super) fn of(
        question: &impl Message,
        size: i32,
        token: &str,
        visibility: &Visibility,
    ) -> Result<Paging, Status> {
        let size = page_size(size)?;
        let token = if token.is_empty() {
            None
        } else {
            Some(parse(token).ok_or_else(|| status::token_malformed("page_token"))?)
        };
        Ok(Paging { question: Question::of(question, visibility), size, token })
    }

    pub(super) fn is_first(&self) -> bool {
        self.token.is_none()
    }
}

/// The source of an answer's pages.
pub(super) trait Source: Send + 'static {
    type Page: Clone + Send;

    /// The next page, of at most `size` entries. A dropped call loses nothing: the next call returns the same page.
    fn next(&mut self, size: usize) -> impl Future<Output = Result<Self::Page, Status>> + Send;

    /// Whether the last page was taken.
    fn has_ended(&self) -> bool;

    /// Approximate bytes that are kept for later pages.
    fn bytes(&self) -> usize;
}

/// An answer that is complete.
#[derive(Debug)]
pub(super) struct Listed<T, R> {
    /// The items of later pages, encoded to save memory.
    items: VecDeque<Box<[u8]>>,
    bytes: usize,
    rest: R,
    item: std::marker::PhantomData<fn() -> T>,
}

impl<T: Message, R> Listed<T, R> {
    pub(super) fn new(items: Vec<T>, rest: R) -> Listed<T, R> {
        let items: VecDeque<Box<[u8]>> = items.into_iter().map(|item| item.encode_to_vec().into()).collect();
        let bytes = items.iter().map(|item| item.len() + size_of::<Box<[u8]>>()).sum();
        Listed { items, bytes, rest, item: std::marker::PhantomData }
    }
}

impl<T, R> Source for Listed<T, R>
where
    T: Message + Clone + Default + 'static,
    R: Clone + Send + 'static,
{
    type Page = (Vec<T>, R);

    async fn next(&mut self, size: usize) -> Result<(Vec<T>, R), Status> {
        let count = fitting(self.items.iter().map(|item| item.len()), size);
        let page = self.items.drain(..count).map(|item| {
            self.bytes -= item.len() + size_of::<Box<[u8]>>();
            T::decode(&*item)
        });
        let page = page.collect::<Result<Vec<T>, _>>();
        Ok((page.map_err(|error| Status::internal(error.to_string()))?, self.rest.clone()))
    }

    fn has_ended(&self) -> bool {
        self.items.is_empty()
    }

    fn bytes(&self) -> usize {
        self.bytes
    }
}

/// The kept answers.
#[derive(Debug, Default)]
pub(super) struct Answers {
    kept: Mutex<VecDeque<Kept>>,
    random: RandomState,
}

#[derive(Debug)]
struct Kept {
    number: u128,
    question: Question,
    at: Instant,
    bytes: usize,
    /// An `Arc<tokio::sync::Mutex<Open<S>>>`.
    open: Box<dyn Any + Send>,
}

/// An answer whose first page was returned.
#[derive(Debug)]
struct Open<S: Source> {
    source: S,
    pages: u32,
    /// The last page, with its token. Page one has no token, so it cannot be requested again.
    last: Option<(S::Page, String)>,
}

type Shared<S> = Arc<tokio::sync::Mutex<Open<S>>>;

impl Answers {
    /// The requested page, and the token of the next one. `first` is called for page one only.
    pub(super) async fn page<S: Source>(
        &self,
        paging: Paging,
        first: impl AsyncFnOnce() -> Result<S, Status>,
    ) -> Result<(S::Page, String), Status> {
        let Some((number, wanted)) = paging.token else {
            let mut source = first().await?;
            let page = source.next(paging.size).await?;
            if source.has_ended() {
                return Ok((page, String::new()));
            }
            let number = self.keep(paging.question, source)?;
            return Ok((page, token(number, 1)));
        };
        let open: Shared<S> = self.get(number, &paging.question)?;
        let mut open = open.lock().await;
        if let Some(last) = open.last.as_ref().filter(|_| wanted + 1 == open.pages) {
            return Ok(last.clone());
        }
        if wanted != open.pages {
            return Err(status::page_token_expired());
        }
        let page = open.source.next(paging.size).await?;
        open.pages += 1;
        let next = if open.source.has_ended() { String::new() } else { token(number, open.pages) };
        open.last = Some((page.clone(), next.clone()));
        self.weigh(number, open.source.bytes() + BYTES_MAX);
        Ok((page, next))
    }

    fn get<S: Source>(&self, number: u128, question: &Question) -> Result<Shared<S>, Status> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|kept| kept.at.elapsed() < AGE_MAX);
        let is_it = |kept: &&Kept| kept.number == number && kept.question.whose == question.whose;
        let found = kept.iter().find(is_it).ok_or_else(status::page_token_expired)?;
        let open = found.open.downcast_ref::<Shared<S>>().filter(|_| found.question == *question);
        open.cloned().ok_or_else(status::page_token_mismatch)
    }

    fn keep<S: Source>(&self, question: Question, source: S) -> Result<u128, Status> {
        let bytes = source.bytes();
        if bytes > CALLER_BYTES_MAX {
            return Err(status::limit_exceeded("bytes in the pages of one answer", CALLER_BYTES_MAX));
        }
        let open: Shared<S> = Arc::new(tokio::sync::Mutex::new(Open { source, pages: 1, last: None }));
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let random = |salt: u8| u128::from(self.random.hash_one((salt, question.digest, Instant::now(), kept.len())));
        let number = random(0) << 64 | random(1);
        kept.push_back(Kept { number, question, at: Instant::now(), bytes, open: Box::new(open) });
        make_room(&mut kept);
        Ok(number)
    }

    /// Records the number of bytes that an answer keeps now.
    fn weigh(&self, number: u128, bytes: usize) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(of) = kept.iter_mut().find(|kept| kept.number == number) {
            of.bytes = bytes;
        }
        make_room(&mut kept);
    }
}

/// Drops kept answers until all bounds hold.
fn make_room(kept: &mut VecDeque<Kept>) {
    kept.retain(|kept| kept.at.elapsed() < AGE_MAX);
    // The loop is short: the bounds on answers and bytes keep the queue small.
    loop {
        let mut callers: Vec<(&Option<Whose>, usize, usize)> = Vec::new();
        for kept in kept.iter() {
            match callers.iter_mut().find(|(whose, ..)| **whose == kept.question.whose) {
                Some((_, answers, bytes)) => (*answers, *bytes) = (*answers + 1, *bytes + kept.bytes),
                None => callers.push((&kept.question.whose, 1, kept.bytes)),
            }
        }
        let is_over =
            |&(_, answers, bytes): &(_, usize, usize)| answers > CALLER_ANSWERS_MAX || bytes > CALLER_BYTES_MAX;
        let over = callers.iter().copied().find(is_over);
        let all: usize = callers.iter().map(|(.., bytes)| bytes).sum();
        let most = || callers.iter().copied().max_by_key(|(.., bytes)| *bytes).filter(|_| all > ALL_BYTES_MAX);
        let Some(whose) = over.or_else(most).map(|(whose, ..)| whose.clone()) else { return };
        let Some(oldest) = kept.iter().position(|kept| kept.question.whose == whose) else { return };
        kept.remove(oldest);
    }
}

fn token(number: u128, page: u32) -> String {
    format!("{FORMAT:02x}{number:032x}{page:08x}")
}

/// The number of entries that a request asks for.
pub(super) fn page_size(wanted: i32) -> Result<usize, Status> {
    let size = usize::try_from(wanted).map_err(|_| status::bad_field("page_size", "is negative"))?;
    Ok(if size == 0 { SIZE_DEFAULT } else { size.min(SIZE_MAX) })
}

/// The number of these items that fit on a page.
pub(super) fn fitting(mut lengths: impl Iterator<Item = usize>, size: usize) -> usize {
    // An oversized item is a page of its own.
    let Some(mut bytes) = lengths.next().map(|length| length + ENTRY_BYTES) else { return 0 };
    let fits = |length: &usize| {
        bytes += length + ENTRY_BYTES;
        bytes <= BYTES_MAX
    };
    1 + lengths.take(size.saturating_sub(1)).take_while(fits).count()
}

pub(super) fn parse(token: &str) -> Option<(u128, u32)> {
    let hex = token.is_ascii() && token.len() == 2 + 32 + 8;
    let token = Some(token).filter(|_| hex)?;
    if u8::from_str_radix(&token[..2], 16).ok()? != FORMAT {
        return None;
    }
    Some((u128::from_str_radix(&token[2..34], 16).ok()?, u32::from_str_radix(&token[34..], 16).ok()?))
}
