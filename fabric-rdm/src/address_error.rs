//! Why bytes or a text are not an address.

use fabric_core::Error;

/// Why bytes or a text are not an [`Address`](crate::Address), or sockets' addresses do not make one.
///
/// It converts to [`Error::InvalidArgument`] with the same text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AddressError {
    /// It begins with something else.
    #[error("not the address of an endpoint: it does not begin with \"FRDM\"")]
    Magic,
    /// It was made by another version of this library.
    #[error(
        "the address has version {found}, and this library reads version {supported} only: \
         use the same version of the library on both sides"
    )]
    Version {
        /// Its version.
        found: u8,
        /// The version that this library reads and writes.
        supported: u8,
    },
    /// It is cut off, or something follows it.
    #[error(
        "the address has {found} bytes where {expected} were expected: it is cut off, or something follows it"
    )]
    Length {
        /// As many bytes as there are.
        found: usize,
        /// As many as it should have, by the number of rails in it; at least, where that could not be read.
        expected: usize,
    },
    /// It was changed on its way.
    #[error(
        "the address is damaged: its check sum is {expected:08x}, and that of its bytes {found:08x}"
    )]
    CheckSum {
        /// The sum of the bytes.
        found: u32,
        /// The sum that is in it.
        expected: u32,
    },
    /// It has no rail, or too many.
    #[error("an address has 1 to {max} rails, not {found}")]
    RailCount {
        /// As many as there are.
        found: usize,
        /// As many as there may be.
        max: usize,
    },
    /// Nothing can be connected to a rail.
    #[error("rail {rail} of the address: {reason}")]
    Rail {
        /// Which one, from 0.
        rail: usize,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The text has a character that is no hexadecimal digit.
    #[error("character {position} of the address is {found:?}, which is no hexadecimal digit")]
    Digit {
        /// Where it is, from 0, in characters.
        position: usize,
        /// The character.
        found: char,
    },
    /// The text has half a byte at its end.
    #[error("the address has {digits} hexadecimal digits, an odd number: it is cut off")]
    OddDigits {
        /// As many as there are.
        digits: usize,
    },
}

impl From<AddressError> for Error {
    fn from(error: AddressError) -> Self {
        Error::invalid("address", error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_becomes_an_invalid_argument_with_its_text() {
        let error = Error::from(AddressError::Version { found: 9, supported: 1 });
        assert!(matches!(error, Error::InvalidArgument(_)));
        assert!(error.to_string().contains("version 9"), "{error}");
        assert!(error.to_string().contains("version 1 only"), "{error}");
    }
}
