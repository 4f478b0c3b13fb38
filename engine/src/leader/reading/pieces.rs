//! What a long look at the graph gathers.

use alloc::vec::Vec;

/// Items of one piece.
const PIECE: usize = 1000;

/// A list that grows without being moved.
#[derive(Debug)]
pub(super) struct Pieces<T> {
    pieces: Vec<Vec<T>>,
    len: usize,
}

impl<T> Pieces<T> {
    pub(super) fn new() -> Pieces<T> {
        Pieces { pieces: Vec::new(), len: 0 }
    }

    pub(super) fn push(&mut self, item: T) {
        match self.pieces.last_mut() {
            Some(piece) if piece.len() < PIECE => piece.push(item),
            Some(_) | None => self.pieces.push(alloc::vec![item]),
        }
        self.len += 1;
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn extend(&mut self, items: impl IntoIterator<Item = T>) {
        items.into_iter().for_each(|item| self.push(item));
    }

    pub(super) fn take(&mut self) -> impl Iterator<Item = T> + use<T> {
        self.len = 0;
        core::mem::take(&mut self.pieces).into_iter().flatten()
    }
}
