//! What an exchange asks of a store.

use crate::error::Result;

/// The folder of the ranks that have joined.
pub(super) const MEMBERS: &str = "members";

/// Where values are kept, of one incarnation of a job. A folder has values by name; names and folders are short, of letters,
/// digits and `-._`, and begin with a letter or digit.
pub(crate) trait Store: Send + Sync {
    /// Keeps a value if there is none of this name, at once and as a whole; false if there is one.
    fn create(&self, folder: &str, name: &str, value: &[u8]) -> Result<bool>;

    /// The value, if there is one.
    ///
    /// # Errors
    /// It has more than `max` bytes, among others.
    fn read(&self, folder: &str, name: &str, max: usize) -> Result<Option<Vec<u8>>>;

    /// The names in a folder. A folder that was never written to has none.
    fn list(&self, folder: &str) -> Result<Vec<String>>;

    /// How many names are in a folder.
    fn count(&self, folder: &str) -> Result<usize>;

    /// Removes a value, if it is there.
    fn remove(&self, folder: &str, name: &str) -> Result<()>;

    /// Removes a folder, if it is there.
    fn remove_folder(&self, folder: &str) -> Result<()>;

    /// Removes all there is of this incarnation.
    fn remove_all(&self) -> Result<()>;

    /// The folder with the ranks whose processes live, if it knows that.
    const ALIVE: Option<&'static str>;
}
