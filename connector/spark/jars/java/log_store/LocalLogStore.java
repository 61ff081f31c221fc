package lakelock;

import io.delta.storage.CloseableIterator;
import io.delta.storage.HDFSLogStore;
import java.io.BufferedWriter;
import java.io.File;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.FileSystemException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Iterator;
import java.util.UUID;
import java.util.stream.Stream;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.LocalFileSystem;

/**
 * Delta's commits in a folder of this machine as hard links: the system makes the name only if it isn't there.
 *
 * <p>Delta writes there as on HDFS: Hadoop looks whether the commit is there, and then renames over whatever is. A
 * process that stops in between replaces the commit of another one, long after that was told that all went well. It
 * also starts five programs per file, which takes longer than to write it.
 */
public class LocalLogStore extends HDFSLogStore {
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
    } catch (FileAlreadyExistsException there) {
      // A network file system may have made the link, and lost the answer.
      if (!Files.isSameFile(commit, written)) {
        throw there;
      }
    } catch (UnsupportedOperationException | FileSystemException noLinks) {
      try (Stream<String> lines = Files.lines(written)) {
        super.write(path, lines.iterator(), false, hadoopConf);
      }
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
