// One switch for all that the page reads again by itself: the reader stops it to look at what is shown.

interface Member {
  pause?(): void;
  resume?(): void;
  /** Asks again what was refused for want of a sign-in or a right. */
  revive(): void;
}

class Updates {
  paused = $state(false);
  #members = new Set<Member>();

  /** The returned function ends the membership. */
  join(member: Member): () => void {
    this.#members.add(member);
    return () => void this.#members.delete(member);
  }

  toggle(): void {
    this.paused = !this.paused;
    for (const member of this.#members) {
      if (this.paused) member.pause?.();
      else member.resume?.();
    }
  }

  revive(): void {
    if (!this.paused) for (const member of this.#members) member.revive();
  }

  /** What a page shows first is no update. */
  resume(): void {
    if (this.paused) this.toggle();
  }
}

export const updates = new Updates();
