//! A vector that grows without moving its items. Moving ten million entries would take too long between two inputs.

use alloc::vec::Vec;
use core::ops::{Index, IndexMut};

/// Items of one page.
const PIECE: usize = 4096;

#[derive(Debug)]
pub(crate) struct PagedVec<T> {
    /// All pages but the last are full. Only the last page may be empty.
    pieces: Vec<Vec<T>>,
}

impl<T> PagedVec<T> {
    pub(crate) const fn new() -> PagedVec<T> {
        PagedVec { pieces: Vec::new() }
    }

    pub(crate) fn len(&self) -> usize {
        self.pieces.last().map_or(0, |last| (self.pieces.len() - 1) * PIECE + last.len())
    }

    /// The number of items that there is room for.
    pub(crate) fn capacity(&self) -> usize {
        self.pieces.last().map_or(0, |last| (self.pieces.len() - 1) * PIECE + last.capacity())
    }

    pub(crate) fn push(&mut self, item: T) {
        match self.pieces.last_mut() {
            Some(piece) if piece.len() < PIECE => piece.push(item),
            last => {
                let mut piece = Vec::with_capacity(if last.is_some() { PIECE } else { 1 });
                piece.push(item);
                self.pieces.push(piece);
            }
        }
    }

    pub(crate) fn pop(&mut self) -> Option<T> {
        // An empty page stays until the previous page is needed, for callers that alternate between pop and push.
        if self.pieces.last()?.is_empty() {
            self.pieces.pop();
        }
        self.pieces.last_mut()?.pop()
    }

    pub(crate) fn get(&self, at: usize) -> Option<&T> {
        self.pieces.get(at / PIECE)?.get(at % PIECE)
    }

    pub(crate) fn get_mut(&mut self, at: usize) -> Option<&mut T> {
        self.pieces.get_mut(at / PIECE)?.get_mut(at % PIECE)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.pieces.iter().flatten()
    }

    pub(crate) fn extend(&mut self, items: impl IntoIterator<Item = T>) {
        items.into_iter().for_each(|item| self.push(item));
    }

    pub(crate) fn take(&mut self) -> impl Iterator<Item = T> + use<T> {
        core::mem::take(&mut self.pieces).into_iter().flatten()
    }
}

impl<T> Default for PagedVec<T> {
    fn default() -> Self {
        PagedVec::new()
    }
}

impl<T> Index<usize> for PagedVec<T> {
    type Output = T;

    fn index(&self, at: usize) -> &T {
        &self.pieces[at / PIECE][at % PIECE]
    }
}

impl<T> IndexMut<usize> for PagedVec<T> {
    fn index_mut(&mut self, at: usize) -> &mut T {
        &mut self.pieces[at / PIECE][at % PIECE]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Across page boundaries, in both directions.
    #[test]
    fn it_is_a_vector() {
        let (mut pieces, mut vector) = (PagedVec::new(), Vec::new());
        for (pushes, pops) in
            [(PIECE, 1), (2, 1), (1, 0), (3 * PIECE, 2 * PIECE + 1), (5, PIECE), (0, 2 * PIECE), (3, 4)]
        {
            for _ in 0..pushes {
                pieces.push(vector.len());
                vector.push(vector.len());
            }
            for _ in 0..pops {
                assert_eq!(pieces.pop(), vector.pop());
            }
            assert!(pieces.iter().eq(&vector) && pieces.len() == vector.len());
            assert!(
                pieces.capacity() >= pieces.len() && pieces.capacity() <= pieces.len().next_multiple_of(PIECE) + PIECE
            );
            for at in [0, PIECE - 1, PIECE, vector.len().saturating_sub(1), vector.len()] {
                assert_eq!(pieces.get(at), vector.get(at));
                assert_eq!(pieces.get_mut(at), vector.get_mut(at));
            }
        }
        pieces.extend([7, 8]);
        pieces[1] += 1;
        assert_eq!((pieces[0], pieces[1]), (7, 9));
        assert!(pieces.take().eq([7, 9]) && pieces.len() == 0 && pieces.pop().is_none());
    }
}
