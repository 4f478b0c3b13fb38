//! The protobuf wire format: the fields of a message in order, borrowed from its bytes.
//!
//! Accepts and refuses the same bytes as prost. Differential tests compare the two.

/// Maximum nesting of groups. Kubernetes uses no groups.
const GROUPS_MAX: usize = 32;
/// Maximum number of bytes of a varint of 64 bits.
const VARINT_MAX_BYTES: usize = 10;

/// Why the bytes are not a valid message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// The bytes end inside a field.
    #[error("the protobuf ends inside a field")]
    CutShort,
    #[error("the protobuf has a number of more than 64 bits")]
    NumberTooLong,
    /// A field number is 0 or too large.
    #[error("the protobuf has an invalid field number")]
    FieldNumber,
    /// Valid wire types are 0 to 5.
    #[error("the protobuf has the unknown wire type {0}")]
    WireType(u32),
    /// A known field has another wire type than its definition.
    #[error("field {0} of the protobuf has an unexpected wire type")]
    UnexpectedWireType(u32),
    /// A group ends without its beginning.
    #[error("the protobuf has a group whose end does not match its beginning")]
    Group,
    /// Groups are nested too deeply.
    #[error("the protobuf has groups more than {GROUPS_MAX} deep")]
    GroupsTooDeep,
    #[error("field {0} of the protobuf is not UTF-8")]
    NotUtf8(u32),
}

/// One field.
#[derive(Clone, Copy, Debug)]
pub(super) struct Field<'a> {
    pub(super) number: u32,
    value: Value<'a>,
}

#[derive(Clone, Copy, Debug)]
enum Value<'a> {
    Varint(u64),
    Bytes(&'a [u8]),
    /// A fixed-size number or a group. No known field has this type.
    Other,
}

impl<'a> Field<'a> {
    pub(super) fn bytes(self) -> Result<&'a [u8], Malformed> {
        match self.value {
            Value::Bytes(bytes) => Ok(bytes),
            Value::Varint(_) | Value::Other => Err(Malformed::UnexpectedWireType(self.number)),
        }
    }

    pub(super) fn text(self) -> Result<&'a str, Malformed> {
        std::str::from_utf8(self.bytes()?).map_err(|_| Malformed::NotUtf8(self.number))
    }

    pub(super) fn message(self) -> Result<Fields<'a>, Malformed> {
        self.bytes().map(Fields::new)
    }

    pub(super) fn varint(self) -> Result<u64, Malformed> {
        match self.value {
            Value::Varint(number) => Ok(number),
            Value::Bytes(_) | Value::Other => Err(Malformed::UnexpectedWireType(self.number)),
        }
    }

    /// An `int64` in two's complement.
    pub(super) fn int64(self) -> Result<i64, Malformed> {
        self.varint().map(u64::cast_signed)
    }

    /// An `int32`: the lower half of a larger number.
    pub(super) fn int32(self) -> Result<i32, Malformed> {
        self.varint().map(|number| (number & u64::from(u32::MAX)) as u32).map(u32::cast_signed)
    }

    pub(super) fn bool(self) -> Result<bool, Malformed> {
        self.varint().map(|number| number != 0)
    }
}

/// The rest of a message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    pub(super) fn new(message: &'a [u8]) -> Fields<'a> {
        Fields { rest: message }
    }

    /// The bytes of the rest.
    #[inline]
    pub(super) fn rest(self) -> &'a [u8] {
        self.rest
    }

    /// The next field. Stop after an error.
    #[inline]
    pub(super) fn next(&mut self) -> Result<Option<Field<'a>>, Malformed> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let (number, wire) = self.key()?;
        let value = match wire {
            0 => Value::Varint(self.varint()?),
            2 => Value::Bytes(self.delimited()?),
            3 => {
                self.pass_group(number)?;
                Value::Other
            }
            other => {
                self.pass_fixed(other)?;
                Value::Other
            }
        };
        Ok(Some(Field { number, value }))
    }

    #[inline]
    fn key(&mut self) -> Result<(u32, u32), Malformed> {
        let key = u32::try_from(self.varint()?).map_err(|_| Malformed::FieldNumber)?;
        if key >> 3 == 0 { Err(Malformed::FieldNumber) } else { Ok((key >> 3, key & 7)) }
    }

    #[inline]
    fn varint(&mut self) -> Result<u64, Malformed> {
        match self.rest.split_first() {
            // This is the fast path, because nearly all keys and lengths take one byte.
            Some((&byte, rest)) if byte < 0x80 => {
                self.rest = rest;
                Ok(u64::from(byte))
            }
            Some(_) => self.long_varint(),
            None => Err(Malformed::CutShort),
        }
    }

    #[cold]
    fn long_varint(&mut self) -> Result<u64, Malformed> {
        let mut number = 0_u64;
        for (at, &byte) in self.rest.iter().take(VARINT_MAX_BYTES).enumerate() {
            // The last byte has room for one bit.
            if at + 1 == VARINT_MAX_BYTES && byte > 1 {
                return Err(Malformed::NumberTooLong);
            }
            number |= u64::from(byte & 0x7f) << (7 * at);
            if byte < 0x80 {
                self.rest = &self.rest[at + 1..];
                return Ok(number);
            }
        }
        Err(Malformed::CutShort)
    }

    #[inline]
    fn delimited(&mut self) -> Result<&'a [u8], Malformed> {
        let length = usize::try_from(self.varint()?).map_err(|_| Malformed::CutShort)?;
        self.take(length)
    }

    #[inline]
    fn take(&mut self, length: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(Malformed::CutShort)?;
        self.rest = rest;
        Ok(taken)
    }

    fn pass_fixed(&mut self, wire: u32) -> Result<(), Malformed> {
        match wire {
            1 => self.take(8).map(drop),
            5 => self.take(4).map(drop),
            4 => Err(Malformed::Group),
            other => Err(Malformed::WireType(other)),
        }
    }

    /// Passes over the group `number`, whose beginning has been read.
    fn pass_group(&mut self, number: u32) -> Result<(), Malformed> {
        let mut open = [0_u32; GROUPS_MAX];
        open[0] = number;
        let mut depth = 1;
        while depth > 0 {
            let (number, wire) = self.key()?;
            match wire {
                0 => drop(self.varint()?),
                2 => drop(self.delimited()?),
                3 => {
                    *open.get_mut(depth).ok_or(Malformed::GroupsTooDeep)? = number;
                    depth += 1;
                }
                4 if open[depth - 1] == number => depth -= 1,
                other => self.pass_fixed(other)?,
            }
        }
        Ok(())
    }
}
