//! Schema versions and migrations.
//!
//! Each object's storage records the schema version it was written in. A newer worker migrates it on first load, in one
//! transaction; an older worker refuses what a newer one wrote, and changes nothing. So every change of what is stored,
//! a new record variant included, needs a migration, even an empty one.

use super::sql::Database;
use crate::session::Unreadable;

/// Migrates storage from one version to the next.
pub type Migration<D> = fn(&D) -> Result<(), Unreadable>;

/// The version these migrations lead to. The first version is 1 and needs none.
pub const fn version<D>(migrations: &[Migration<D>]) -> u32 {
    migrations.len() as u32 + 1
}

/// Migrates storage of the version `found` to the current one, all or nothing. `stamp` stores the version.
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
