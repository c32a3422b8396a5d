//! The version of a storage's form.
//!
//! Each object's storage says in which form it was written. A newer worker brings it to its own form when it first loads
//! it, in one transaction; an older worker refuses what a newer one wrote, and changes nothing. So a change of what is stored,
//! a new record variant included, takes a migration, even one that does nothing.

use super::sql::Database;
use crate::session::Unreadable;

/// Brings storage from one version to the next.
pub type Migration<D> = fn(&D) -> Result<(), Unreadable>;

/// The version that the last of these migrations leads to. The first version is 1 and needs none.
pub const fn version<D>(migrations: &[Migration<D>]) -> u32 {
    migrations.len() as u32 + 1
}

/// Brings storage of the version `found` to the current one, all or nothing. `stamp` writes the version down.
pub fn migrate<D: Database>(
    sql: &D,
    found: u32,
    migrations: &[Migration<D>],
    stamp: impl Fn(u32) -> Result<(), Unreadable>,
) -> Result<(), Unreadable> {
    let known = version(migrations);
    if found > known {
        return Err(Unreadable::Newer { found, known });
    }
    if found == known {
        return Ok(());
    }
    let missing = usize::try_from(found.saturating_sub(1)).unwrap_or(usize::MAX);
    sql.atomically(|| {
        migrations.iter().skip(missing).try_for_each(|migration| migration(sql))?;
        stamp(known)
    })
}
