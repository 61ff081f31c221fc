package lakelock;

import io.delta.storage.CloseableIterator;
import io.delta.storage.HDFSLogStore;
import java.io.BufferedWriter;
import java.io.File;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.AccessDeniedException;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.Iterator;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;
import java.util.stream.Stream;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Delta's commits in a folder of this machine as hard links: the system makes the name only if it isn't there.
 *
 * <p>Delta writes there as on HDFS: Hadoop looks whether the commit is there, and then renames over whatever is. A
 * process that stops in between replaces the commit of another one, long after that was told that all went well. It
 * also starts five programs per file, which takes longer than to write it.
 */
public class LocalLogStore extends HDFSLogStore {
  private static final Logger LOG = LoggerFactory.getLogger(LocalLogStore.class);
  private static final Set<Path> TOLD = ConcurrentHashMap.newKeySet();

  public LocalLogStore(Configuration hadoopConf) {
    super(hadoopConf);
  }

  @Override
  public void write(
      org.apache.hadoop.fs.Path path, Iterator<String> actions, Boolean overwrite, Configuration hadoopConf)
      throws IOException {
    if (overwrite || !(path.getFileSystem(hadoopConf) instanceof LocalFileSystem)) {
      super.write(path, actions, overwrite, hadoopConf);
      return;
    }
    Path commit = new File(path.toUri().getPath()).toPath();
    Path written = commit.resolveSibling("." + commit.getFileName() + "." + UUID.randomUUID() + ".tmp");
    try {
      lines(actions, written);
      allow(written, hadoopConf);
      // Hadoop would check the commit by what is left of another file of this name.
      Files.deleteIfExists(commit.resolveSibling("." + commit.getFileName() + ".crc"));
      link(commit, written, path, hadoopConf);
    } finally {
      delete(written);
    }
  }

  private void link(Path commit, Path written, org.apache.hadoop.fs.Path path, Configuration hadoopConf)
      throws IOException {
    try {
      Files.createLink(commit, written);
      return;
    } catch (IOException failed) {
      if (Files.exists(commit)) {
        // A network file system may have made the link, and lost the answer.
        if (Files.isSameFile(commit, written)) {
          return;
        }
        throw there(commit, failed);
      }
      if (hasLinks(written)) {
        throw failed;
      }
    } catch (UnsupportedOperationException noLinks) {
      // As on a disk that refuses each link.
    }
    if (TOLD.add(commit.getParent())) {
      LOG.warn("No hard links in {}: of two processes that commit at once, one may overwrite the other", commit.getParent());
    }
    try (Stream<String> lines = Files.lines(written)) {
      super.write(path, lines.iterator(), false, hadoopConf);
    }
  }

  private static FileAlreadyExistsException there(Path commit, IOException failed) {
    if (failed instanceof FileAlreadyExistsException) {
      return (FileAlreadyExistsException) failed;
    }
    FileAlreadyExistsException there = new FileAlreadyExistsException(commit.toString());
    there.initCause(failed);
    return there;
  }

  /** Whether a link can be made beside the file, so that one that failed has failed for another reason. */
  private static boolean hasLinks(Path written) {
    Path probe = written.resolveSibling(written.getFileName().toString().replace(".tmp", ".link.tmp"));
    try {
      Files.createLink(probe, written);
      return true;
    } catch (NoSuchFileException | AccessDeniedException notHere) {
      return true;
    } catch (IOException | UnsupportedOperationException noLinks) {
      return false;
    } finally {
      delete(probe);
    }
  }

  /** The permissions that Hadoop gives to the table's other files, whatever this process would give. */
  private static void allow(Path written, Configuration hadoopConf) throws IOException {
    FsPermission usual = FsPermission.getFileDefault().applyUMask(FsPermission.getUMask(hadoopConf));
    try {
      Files.setPosixFilePermissions(written, PosixFilePermissions.fromString(usual.toString()));
    } catch (UnsupportedOperationException noPosix) {
      return;
    }
  }

  private static void lines(Iterator<String> actions, Path into) throws IOException {
    try (BufferedWriter out = Files.newBufferedWriter(into)) {
      while (actions.hasNext()) {
        out.write(actions.next());
        out.write('\n');
      }
    } catch (UncheckedIOException failed) {
      throw failed.getCause();
    } finally {
      if (actions instanceof CloseableIterator) {
        ((CloseableIterator<String>) actions).close();
      }
    }
  }

  /** What can't be deleted does no harm: Delta passes over such names. */
  private static void delete(Path written) {
    try {
      Files.deleteIfExists(written);
    } catch (IOException left) {
      return;
    }
  }
}
